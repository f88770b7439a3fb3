/** Picking runs: what is picked, and overviews of runs that are put together from those of some of them. */

import type { Block, Cell, Overview, Section } from "./data";
import { h } from "./dom";
import { shown } from "./state";

/** Picks these runs and draws the page again; none means all. */
export function pick(runs: string[]): void {
  shown.runs = runs;
  dispatchEvent(new Event("picked-runs"));
}

/** A line with the picked runs, on every page; null if all are shown. */
export function pickedLine(overview: Overview): HTMLElement | null {
  if (!shown.runs.length) return null;
  const names = shown.runs.map((id) => overview.runs.find((run) => run.id === id)?.name ?? id);
  return h("p", { class: "picked", role: "status" },
    `Of ${overview.runs.length.toLocaleString("en")} runs ${names.length.toLocaleString("en")} picked: `,
    ...shown.runs.flatMap((id, place) => [
      h("button", { type: "button", class: "chip", "aria-label": `Unpick the run ${names[place]}`, click: () => pick(shown.runs.filter((one) => one !== id)) }, `${names[place]} ✕`), " ",
    ]),
    h("button", { type: "button", click: () => pick([]) }, "All runs"), overview.of_all ? ` ${overview.of_all}` : null);
}

/** The overview of runs, from overviews of some of them: curves in one chart, rows in one table, the rest one after the other. */
export function merged(all: Overview, runs: string[], parts: (Partial<Overview> & { picked?: string[] })[]): Overview {
  const runName = (id: string): string => all.runs.find((run) => run.id === id)?.name ?? id;
  const curves = all.sections.find((section) => section.id === "returns")?.blocks.find((block) => block.type === "lines");
  const nameOf = (id: string): string => (curves?.type === "lines" && curves.series.find((one) => one.runs?.includes(id))?.name) || runName(id);
  const name = (ids: string[]): string => {
    const [id = ""] = ids, own = nameOf(id);
    return ids.length === 1 && runs.filter((one) => nameOf(one) === own).length > 1 ? `${own} ${id.slice(0, 8)}` : own;
  };
  const isOne = parts.length === 1;
  const sections = new Map<string, Section>();
  for (const part of parts) {
    for (const section of part.sections ?? []) {
      if (section.id === "runs") continue;
      const target = sections.get(section.id) ?? { ...section, blocks: [] };
      sections.set(section.id, target);
      for (const block of section.blocks) add(target.blocks, isOne ? block : named(block, name(part.picked ?? []), runName(part.picked?.[0] ?? "")));
    }
  }
  const order = all.sections.map((section) => section.id);
  const made = [...sections.values()].sort((one, other) => order.indexOf(one.id) - order.indexOf(other.id));
  const ofRuns = all.sections.filter((section) => section.id === "runs");
  const missing = runs.length - new Set(parts.flatMap((part) => part.picked ?? [])).size;
  const note: Section[] = missing
    ? [{ id: "summary", title: "Summary", blocks: [{ type: "note", state: "warn", text: "This report has no overview of single runs, since it has too many; its lists are of those that are picked." }] }] : [];
  return {
    ...all,
    picked: runs,
    sections: [...ofRuns, ...note, ...made],
    views: (isOne ? parts[0]?.views : null) ?? all.views,
    marks: parts.flatMap((part) => part.marks ?? []),
  };
}

/** A block that says which runs it is of; `own` is the name that their curves have already. */
function named(block: Block, name: string, own: string): Block {
  const curve = <T extends { name: string }>(one: T): T => ({ ...one, name: one.name && one.name !== own ? `${name}: ${one.name}` : name });
  switch (block.type) {
    case "lines":
      return { ...block, series: block.series.map(curve), ...(block.views ? { views: block.views.map((view) => ({ ...view, series: view.series.map(curve) })) } : {}) };
    case "table":
      return { ...block, columns: [{ key: "of", label: "runs", kind: "text", help: "" }, ...block.columns], rows: block.rows.map((row): Cell[] => [name, ...row]) };
    case "facts":
      return { ...block, items: [{ label: "runs", value: name, detail: "", state: "plain" }, ...block.items] };
    case "note":
      return { ...block, text: `${name}: ${block.text}` };
    case "findings":
      return { ...block, items: block.items.map((item) => ({ ...item, evidence: `${name}: ${item.evidence}` })) };
    case "histogram":
    case "scatter":
      return { ...block, title: `${block.title}: ${name}` };
    default:
      return block;
  }
}

/** Adds a block; curves and rows go to an earlier block with the same title. */
function add(blocks: Block[], block: Block): void {
  const same = blocks.findIndex((one) => "title" in one && "title" in block && one.type === block.type && one.title === block.title);
  const earlier = blocks[same];
  if (earlier?.type === "lines" && block.type === "lines") {
    blocks[same] = { ...earlier, series: [...earlier.series, ...block.series] };
    const views = earlier.views?.map((view) => ({ ...view, series: [...view.series, ...(block.views?.find((one) => one.axis === view.axis)?.series ?? [])] }));
    if (views) blocks[same] = { ...earlier, series: views[0]?.series ?? [], views };
  } else if (earlier?.type === "table" && block.type === "table" && String(earlier.columns.map((one) => one.key)) === String(block.columns.map((one) => one.key))) {
    blocks[same] = { ...earlier, rows: [...earlier.rows, ...block.rows] };
  } else blocks.push(block);
}
