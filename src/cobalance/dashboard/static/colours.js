// A colour for each member, by its number in the journal: the same on every page, and neighbours differ most.

const isDark = matchMedia("(prefers-color-scheme: dark)");

// Steps by the golden angle, in what red leaves: that is for gaps.
const colour = (number) => {
  const hue = 50 + ((number * 0.618034 + 0.55) % 1) * 305;
  const step = number % 3;
  return isDark.matches ? `oklch(${0.86 - step * 0.1} 0.13 ${hue})` : `oklch(${0.57 - step * 0.05} 0.14 ${hue})`;
};

export class Colours {
  constructor() {
    this.numbers = new Map();
  }

  // Takes what has an id and a number.
  know(members) {
    for (const { id, number } of members) this.numbers.set(id, number ?? this.numbers.get(id) ?? this.numbers.size);
  }

  of(id) {
    return this.numbers.has(id) ? colour(this.numbers.get(id)) : "transparent";
  }
}

export const onColour = () => (isDark.matches ? "#10151a" : "#ffffff");

export const onThemeChange = (act) => isDark.addEventListener("change", act);
