// Fills the page that the server named, the line that says where one is, and the ways to other pages.

import { element, link } from "./dom.js";
import { here } from "./here.js";

const TITLES = { groups: "Groups", topics: "Topics", status: "Status", group: "Group", handovers: "Handovers", tuning: "Tuning", partition: "Partition", member: "Member" };
const { page, group, partition, member } = here;

function breadcrumbs() {
  const steps = [link(here.path(), "Cobalance", { class: "brand" })];
  const of = (...names) => here.path("groups", group, ...names);
  if (page === "topics" || page === "status") steps.push(link(here.path(page), TITLES[page]));
  if (group) steps.push(link(of(), group));
  if (page === "handovers" || page === "tuning") steps.push(link(of(page), TITLES[page]));
  if (page === "partition") steps.push(link(of("partitions", partition), partition));
  if (page === "member") steps.push(link(of("members", member), "Member"));
  steps.at(-1).setAttribute("aria-current", "page");
  document.getElementById("where").append(element("ol", {}, ...steps.map((step) => element("li", {}, step))));
}

// The pages of a group, or those about all groups.
function ways() {
  const found = group
    ? [["group", here.path("groups", group), "Group"], ["handovers", here.path("groups", group, "handovers"), "Handovers"], ["tuning", here.path("groups", group, "tuning"), "Tuning"]]
    : [["groups", here.path(), "Groups"], ["topics", here.path("topics"), "Topics"], ["status", here.path("status"), "Status"]];
  const made = found.map(([name, path, text]) => element("li", {}, link(path, text, { "aria-current": name === page ? "page" : null })));
  document.getElementById("pages").append(element("ul", {}, ...made));
}

document.title = [partition || member, group, TITLES[page], "Cobalance"].filter(Boolean).join(" · ");
breadcrumbs();
ways();
const main = document.getElementById("main");
document.getElementById("skip").addEventListener("click", () => main.focus());
const { show } = await import(`./pages/${page}.js`);
show(main);
