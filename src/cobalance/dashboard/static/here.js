// Where this page is, and where others are.

const { base, page, group, partition, member, actions } = document.body.dataset;

const joined = (names) => names.map(encodeURIComponent).join("/");

export const here = {
  page,
  group,
  partition,
  member,
  areActionsAllowed: actions === "allowed",
  path: (...names) => base + joined(names),
  api: (...names) => `${base}api/v1/${joined(names)}`,
};
