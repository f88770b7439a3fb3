/** The page of an update: its numbers, its groups, and what was discarded. */

import { block } from "./blocks";
import type { UpdatePage } from "./data";
import { h, link } from "./dom";
import { emptyQuery, listAddress, updateAddress } from "./state";

export function updatePage(found: UpdatePage): HTMLElement {
  const filters = [{ column: "update", operator: "=" as const, value: String(found.index) }];
  return h("div", { class: "update" },
    h("h1", {}, found.title),
    h("p", { class: "tools" },
      found.previous === null ? null : link(updateAddress(found.run, found.previous), "← previous", "key: k"),
      found.next === null ? null : link(updateAddress(found.run, found.next), "next →", "key: j"),
      link(listAddress({ ...emptyQuery(), filters, sort: "start", descending: false }), "Its episodes as a list")),
    ...found.sections.map((section) => h("section", {}, h("h2", {}, section.title), h("div", { class: "blocks" }, ...section.blocks.map(block)))));
}
