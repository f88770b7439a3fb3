/** The overview: the sections of a recording, with a list of them. */

import { block } from "./blocks";
import { curveChoices, setMarks } from "./charts";
import type { Overview } from "./data";
import { h, link } from "./dom";
import { time } from "./format";
import { pickedLine } from "./picking";
import { emptyQuery, listAddress, overviewAddress } from "./state";

export function overviewPage(found: Overview): HTMLElement {
  setMarks(found);
  const contents = h("nav", { class: "contents", "aria-label": "Sections" },
    h("ul", {}, ...found.sections.map((section) => h("li", {}, link(overviewAddress(section.id), section.title)))));
  const page = h("div", { class: "overview" }, contents,
    h("div", { class: "sections" },
      h("h1", {}, found.title),
      h("p", { class: "note" }, `${sources(found.sources)}; made ${time(found.made)} UTC by mttp ${found.version}.`),
      found.sampling ? h("p", { class: "message warn" }, `! ${found.sampling}`) : null,
      pickedLine(found),
      views(found),
      ...found.sections.map((section) =>
        h("section", { id: `section-${section.id}`, tabindex: -1, "aria-labelledby": `title-${section.id}` },
          h("h2", { id: `title-${section.id}` }, section.title),
          curveChoices(section.blocks.filter((one) => one.type === "lines"), section.id === "returns"),
          h("div", { class: "blocks" }, ...section.blocks.map(block)))),
    ));
  return page;
}

const MOST_SOURCES = 4;

function sources(found: string[]): string {
  const rest = found.length - MOST_SOURCES;
  return (found.slice(0, MOST_SOURCES).join(", ") || "memory") + (rest > 0 ? ` and ${rest} more` : "");
}

/** Links to the episodes that are worth a look first. */
function views(found: Overview): HTMLElement {
  return h("p", { class: "views" }, h("b", {}, "Look at episodes: "), ...found.views.flatMap((view) => [
    link(listAddress({ ...emptyQuery(), filters: view.filters, sort: view.sort, descending: view.descending }), view.name, view.help), " ",
  ]));
}
