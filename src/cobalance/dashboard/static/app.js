// Fills the page that the server named, and the line that says where one is.

import { element, link } from "./dom.js";
import { here } from "./here.js";

const TITLES = { groups: "Groups", group: "Group", handovers: "Handovers", partition: "Partition" };

function breadcrumbs() {
  const { page, group, partition } = here;
  const steps = [link(here.path(), "Cobalance", { class: "brand" })];
  if (group) steps.push(link(here.path("groups", group), group));
  if (page === "handovers") steps.push(link(here.path("groups", group, "handovers"), "Handovers"));
  if (page === "partition") steps.push(link(here.path("groups", group, "partitions", partition), partition));
  steps.at(-1).setAttribute("aria-current", "page");
  document.getElementById("where").append(element("ol", {}, ...steps.map((step) => element("li", {}, step))));
}

document.title = [here.partition, here.group, TITLES[here.page], "Cobalance"].filter(Boolean).join(" · ");
breadcrumbs();
const main = document.getElementById("main");
document.getElementById("skip").addEventListener("click", () => main.focus());
const { show } = await import(`./pages/${here.page}.js`);
show(main);
