// Where this page is, and where others are.

const { base, page, group, partition, member } = document.body.dataset;

const joined = (names) => names.map(encodeURIComponent).join("/");

export const here = {
  page,
  group,
  partition,
  member,
  path: (...names) => base + joined(names),
  api: (...names) => `${base}api/v1/${joined(names)}`,
};
