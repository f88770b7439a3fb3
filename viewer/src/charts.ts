/** Charts as SVG with a title, a note on the method, and a table of their numbers. */

import * as Plot from "@observablehq/plot";
import type { Axis, Histogram, Lines, LinesView, Mark, Overview, Scatter } from "./data";
import { append, h, link, replace, scrolling, visible } from "./dom";
import { count, number, time } from "./format";
import { shown, updateAddress, writeShown } from "./state";

/** Okabe and Ito's palette, which people with colour blindness tell apart; black last, drawn as the text colour. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a900", "currentColor"];
const HEIGHT = 160;

export function colour(place: number): string {
  return COLOURS[place % COLOURS.length] ?? "currentColor";
}

interface Point { x: number; y: number | null; low: number | null; high: number | null; name: string; run: string }

const CHOSEN = new EventTarget();
let marked: Mark[] = [];
let runNames = new Map<string, string>();

/** What all curves of an overview have in common: marks, and the names of runs. */
export function setMarks(overview: Overview): void {
  marked = overview.marks;
  runNames = new Map(overview.runs.map((run) => [run.id, run.name]));
}

/** Draws all curves again, and keeps what was chosen in the address. */
function choose(): void {
  writeShown();
  CHOSEN.dispatchEvent(new Event("change"));
}

const viewOf = (block: Lines): LinesView | undefined => block.views?.find((one) => one.axis === shown.axis) ?? block.views?.[0];

/** Curves with their bands; over one of several axes, with a linear or logarithmic scale, without those that are hidden. */
export function lines(block: Lines): HTMLElement {
  if (!block.views) return oneAxis(block, null);
  const place = h("div", { class: "curves-of" });
  const focusable = (): HTMLElement[] => [...place.querySelectorAll<HTMLElement>("button, .chart")];
  const show = (): void => {
    const view = viewOf(block);
    const focused = focusable().findIndex((one) => one === document.activeElement);
    const opened = place.querySelector("details")?.open ?? false;
    replace(place, oneAxis({ ...block, ...view }, view ?? null));
    if (opened) place.querySelector("details")!.open = true;
    focusable()[focused]?.focus();
  };
  CHOSEN.addEventListener("change", () => { if (place.isConnected) show(); });
  show();
  return place;
}

/** The choices for the curves of a section. */
export function curveChoices(blocks: Lines[], withMarks: boolean): HTMLElement | null {
  const axes = [...new Set(blocks.flatMap((block) => block.views?.map((view) => view.axis) ?? []))];
  if (!axes.length) return null;
  const select = h("select", { "aria-label": "horizontal axis", change: () => { shown.axis = select.value; choose(); } },
    h("option", { value: "" }, "the usual axis"), ...axes.map((axis) => h("option", { value: axis, selected: axis === shown.axis }, axis)));
  const log = h("input", { type: "checkbox", checked: shown.log, change: () => { shown.log = log.checked; choose(); } });
  const marks = h("input", { type: "checkbox", checked: shown.marks, change: () => { shown.marks = marks.checked; choose(); } });
  const button = (label: string, text: string, factor: number, shift: number): HTMLElement =>
    h("button", { type: "button", "aria-label": label, title: label, click: () => zoom(blocks, factor, shift) }, text);
  return h("div", {},
    h("div", { class: "tools" }, h("label", {}, "over ", select), h("label", {}, log, " logarithmic scale"),
      marked.length ? h("label", {}, marks, " marks") : null,
      h("span", { role: "group", "aria-label": "Zoom" }, button("Zoom in", "+", 0.5, 0), button("Zoom out", "−", 2, 0), button("Earlier", "◀", 1, -0.25), button("Later", "▶", 1, 0.25), button("Show the whole axis", "all", Infinity, 0))),
    withMarks && marked.length ? marksList() : null);
}

/** What is marked, as a list that is folded. */
function marksList(): HTMLElement {
  const findings = marked.filter((mark) => mark.kind === "finding").length;
  return h("details", { class: "marks" }, h("summary", {}, `Marked: ${count(findings, "finding")}, ${count(marked.length - findings, "version")} of the policy`),
    h("ul", {}, ...marked.map((mark) => h("li", {},
      mark.update === null ? h("b", {}, mark.name) : link(updateAddress(mark.run, mark.update), mark.name),
      ` ${[runNames.size > 1 ? runNames.get(mark.run) ?? mark.run : "", mark.severity, mark.text].filter(Boolean).join(", ")}; `,
      Object.entries(mark.places).filter(([, place]) => place !== null).map(([axis, place]) => `${axis} ${number(place)}`).join(", ")))));
}

/** Shows a part of the axes of these curves: `factor` times as much as now, moved by a share of it. */
function zoom(blocks: Lines[], factor: number, shift: number): void {
  for (const axis of new Set(blocks.flatMap((block) => viewOf(block)?.axis ?? []))) {
    const all = blocks.flatMap((block) => { const view = viewOf(block); return view?.axis === axis ? view.series.flatMap((one) => one.x) : []; });
    const [least, most] = [Math.min(...all), Math.max(...all)];
    const [from, to] = shown.zoom.get(axis) ?? [least, most];
    const width = (to - from) * factor, middle = (from + to) / 2 + (to - from) * shift;
    if (!(width < most - least)) shown.zoom.delete(axis);
    else {
      const start = Math.max(least, Math.min(most - width, middle - width / 2));
      shown.zoom.set(axis, [start, start + width]);
    }
  }
  choose();
}

const KEYS: { [key: string]: [number, number] } = { "+": [0.5, 0], "=": [0.5, 0], "-": [2, 0], ArrowLeft: [1, -0.25], ArrowRight: [1, 0.25], 0: [Infinity, 0] };

/** A chart of the curves over one axis; with `view`, one that can be zoomed, with marks, whose curves can be hidden. */
function oneAxis(block: Lines, view: LinesView | null): HTMLElement {
  const names = block.series.map((one) => one.name);
  const part = view ? shown.zoom.get(view.axis) : undefined;
  const isIn = (x: number): boolean => !part || (x >= part[0] && x <= part[1]);
  const shownSeries = block.series.filter((one) => !view || !shown.hidden.has(one.name));
  const points: Point[] = shownSeries.flatMap((one) =>
    one.x.map((x, place) => ({
      x,
      y: one.y[place] ?? null,
      low: one.low?.[place] ?? null,
      high: one.high?.[place] ?? null,
      name: one.name,
      run: one.runs?.length === 1 ? one.runs[0] ?? "" : "",
    })).filter((one) => isIn(one.x)),
  );
  const banded = points.filter((one) => one.low !== null && one.high !== null);
  const dots = points.filter((one) => one.y !== null && shownSeries.some((found) => found.name === one.name && found.dots));
  const log = view !== null && shown.log && points.every((one) => one.y === null || one.y > 0);
  const ofUpdates = block.views?.[0]?.axis === "updates" && view?.axis === "updates";
  const charted: Plot.Markish[] = [
    ...(view && shown.marks ? marksOf(view, shownSeries, isIn) : []),
    Plot.areaY(log ? banded.filter((one) => (one.low ?? 0) > 0) : banded, { x: "x", y1: "low", y2: "high", z: "name", fill: "name", fillOpacity: 0.18 }),
    Plot.lineY(points, { x: "x", y: "y", z: "name", stroke: "name", strokeWidth: 1.6 }),
    Plot.dot(dots, { x: "x", y: "y", fill: "name", r: 2 }),
    Plot.tip(
      points.filter((one) => one.y !== null),
      Plot.pointerX({ x: "x", y: "y", title: (one: Point) => tip(one, block, names.length > 1) + (ofUpdates && one.run ? "\nclick opens the update" : "") }),
    ),
  ];
  const rows = points.map((one) => [one.name, ofUpdates && one.run ? link(updateAddress(one.run, Math.round(one.x)), placed(one.x, block.x)) : placed(one.x, block.x), one.y, one.low, one.high]);
  const head = ["series", block.x.label, block.y.label, "low", "high"];
  const toggle = view ? (name: string): void => {
    if (!shown.hidden.delete(name)) shown.hidden.add(name);
    choose();
  } : undefined;
  const made = figure(block.title, block.note, legend(names, toggle), (place) => draw(place, charted, block.x, block.y, names, log, part), head, rows);
  const chart = made.querySelector<HTMLElement>(".chart");
  if (view && chart) zoomable(chart, block, view, ofUpdates ? points.filter((one) => one.run && one.y !== null) : []);
  return made;
}

/** Lines at findings, with their names at the top, and at versions of the policy. */
function marksOf(view: LinesView, series: Lines["series"], isIn: (x: number) => boolean): Plot.Markish[] {
  const curveOf = (mark: Mark): string | undefined => series.find((one) => !one.runs?.length || one.runs.includes(mark.run))?.name;
  const placed = marked.flatMap((mark) => {
    const x = mark.places[view.axis], name = curveOf(mark);
    return typeof x === "number" && isIn(x) && name !== undefined ? [{ x, name, mark }] : [];
  });
  const ofKind = (kind: Mark["kind"]): typeof placed => placed.filter((one) => one.mark.kind === kind);
  const words = new Map<number, string[]>();
  for (const { x, mark } of ofKind("finding")) words.set(x, [...(words.get(x) ?? []), mark.name]);
  const title = (one: (typeof placed)[number]): string => visible(`${one.mark.name}: ${one.mark.text}`);
  return [
    Plot.ruleX(ofKind("policy"), { x: "x", stroke: "name", strokeOpacity: 0.5, strokeDasharray: "2,3", title, className: "versions" }),
    Plot.ruleX(ofKind("finding"), { x: "x", stroke: "name", strokeWidth: 1.2, title, className: "findings-at" }),
    Plot.text([...words], { x: (one: [number, string[]]) => one[0], text: (one: [number, string[]]) => visible(one[1].join(", ")), frameAnchor: "top-right", rotate: -90, textAnchor: "end", dx: 4, fontSize: 9, className: "names" }),
  ];
}

/** Drags, keys and clicks of a chart: a part of the axis, all of it, or the update of the nearest of these points. */
function zoomable(chart: HTMLElement, block: Lines, view: LinesView, updates: Point[]): void {
  chart.tabIndex = 0;
  chart.title = "drag to zoom; keys: + and - zoom, ← → move, 0 shows all";
  const band = h("div", { class: "zoomed" });
  let start: number | null = null;
  const svg = (): (SVGSVGElement & Plot.Plot) | null => chart.querySelector("svg") as (SVGSVGElement & Plot.Plot) | null;
  const at = (event: PointerEvent): number => event.clientX - (svg()?.getBoundingClientRect().left ?? 0);
  chart.addEventListener("pointerdown", (event) => {
    if (event.button === 0) start = at(event);
  }, true); // before the tip, which keeps it
  chart.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const now = at(event);
    if (Math.abs(now - start) > 5 && !band.isConnected) {
      chart.append(band);
      chart.setPointerCapture(event.pointerId);
    }
    band.style.left = `${Math.min(start, now)}px`;
    band.style.width = `${Math.abs(now - start)}px`;
  });
  chart.addEventListener("pointerup", (event) => {
    const from = start, to = at(event), wasDrag = band.isConnected;
    start = null;
    band.remove();
    const { invert, apply } = svg()?.scale("x") ?? {};
    if (from === null || !invert || !apply) return;
    if (wasDrag) {
      const [least, most] = [from, to].map((one) => Number(invert(one))).sort((one, other) => one - other);
      if (least !== undefined && most !== undefined && least < most) shown.zoom.set(view.axis, [round(least), round(most)]);
      choose();
    } else {
      const y = svg()?.scale("y")?.apply, top = svg()?.getBoundingClientRect().top ?? 0;
      const distance = (one: Point): number => 1000 * Math.abs(apply(one.x) - to) + Math.abs((y?.(one.y) ?? 0) - (event.clientY - top));
      const [point] = [...updates].sort((one, other) => distance(one) - distance(other));
      if (point) location.hash = updateAddress(point.run, Math.round(point.x));
    }
  });
  chart.addEventListener("dblclick", () => zoom([block], Infinity, 0));
  chart.addEventListener("keydown", (event) => {
    const change = event.ctrlKey || event.metaKey || event.altKey ? undefined : KEYS[event.key];
    if (!change) return;
    event.preventDefault();
    event.stopPropagation();
    zoom([block], ...change);
  });
}

const round = (value: number): number => Number(value.toPrecision(6));

function tip(one: Point, block: Lines, named: boolean): string {
  const band = one.low === null || one.high === null ? "" : ` [${number(one.low)}, ${number(one.high)}]`;
  const words = [named ? one.name : "", `${block.x.label} ${placed(one.x, block.x)}`, `${number(one.y ?? NaN)}${band}`];
  return visible(words.filter(Boolean).join("\n"));
}

export function histogram(block: Histogram): HTMLElement {
  const names = block.series.map((one) => one.name);
  const total = block.series.map((one) => one.counts.reduce((sum, count) => sum + count, 0));
  const several = block.series.length > 1;
  const bars = block.series.flatMap((one, index) =>
    one.counts.map((count, place) => ({
      low: block.edges[place] ?? 0,
      high: block.edges[place + 1] ?? 0,
      share: several ? count / (total[index] || 1) : count,
      count,
      name: one.name,
    })),
  );
  const label = several ? "share" : "episodes";
  const marks: Plot.Markish[] = [
    Plot.rectY(bars, { x1: "low", x2: "high", y2: "share", y1: 0, z: "name", fill: "name", fillOpacity: several ? 0.45 : 0.85, insetLeft: 0.5, insetRight: 0.5 }),
    Plot.ruleY([0]),
    Plot.tip(bars, Plot.pointerX({
      x: (one: { low: number; high: number }) => (one.low + one.high) / 2,
      y: "share",
      title: (one: (typeof bars)[number]) => visible(`${several ? `${one.name}\n` : ""}${number(one.low)} to ${number(one.high)}\n${number(one.count)} episodes`),
    })),
  ];
  const rows = bars.map((one) => [one.name, number(one.low), number(one.high), one.count]);
  const y: Axis = { label, kind: "number" };
  return figure(block.title, block.note, legend(names), (place) => draw(place, marks, block.x, y, names), ["series", "from", "to", "episodes"], rows);
}

export function scatter(block: Scatter, open: (episode: string) => void): HTMLElement {
  const names = block.series.map((one) => one.name);
  const points = block.series.flatMap((one) =>
    one.x.map((x, place) => ({ x, y: one.y[place] ?? NaN, episode: one.episodes[place] ?? "", name: one.name })),
  );
  const marks: Plot.Markish[] = [
    Plot.dot(points, { x: "x", y: "y", stroke: "name", r: 2.5, strokeOpacity: 0.7, symbol: "name" }),
    Plot.tip(points, Plot.pointer({
      x: "x",
      y: "y",
      title: (one: (typeof points)[number]) => visible(`${one.name}\n${block.x.label} ${number(one.x)}\n${block.y.label} ${number(one.y)}\nclick opens ${one.episode.slice(0, 8)}`),
    })),
  ];
  const make = (place: Element): Element => {
    const chart = draw(place, marks, block.x, block.y, names);
    const svg = chart as unknown as { value?: { episode?: string } };
    chart.addEventListener("click", () => {
      if (svg.value?.episode) open(svg.value.episode);
    });
    return chart;
  };
  const rows = points.map((one) => [one.name, number(one.x), number(one.y), one.episode]);
  return figure(block.title, block.note, legend(names), make, ["series", block.x.label, block.y.label, "episode"], rows, open);
}

function draw(place: Element, marks: Plot.Markish[], x: Axis, y: Axis, names: string[], log = false, part?: [number, number]): Element {
  const width = Math.max(240, place.clientWidth);
  const svg = Plot.plot({
    width,
    height: HEIGHT,
    marginLeft: 50,
    x: { label: x.label, type: x.kind === "time" ? "utc" : "linear", nice: x.kind !== "time" && !part, ticks: width / 90, ...(part ? { domain: part } : {}) },
    y: { label: y.label, type: log ? "log" : "linear", grid: true, nice: true, ticks: 5, tickFormat: (value: number) => number(value) },
    color: { domain: names, range: names.map((_, place) => colour(place)) },
    marks,
  });
  // The rules of this style element are in the style sheet: a policy against inline styles would refuse it.
  for (const style of svg.querySelectorAll("style")) style.remove();
  // The chart has a name; parts of a picture must have none.
  for (const part of svg.querySelectorAll<SVGElement>("g[aria-label]")) {
    part.dataset.mark = part.getAttribute("aria-label") ?? "";
    part.removeAttribute("aria-label");
  }
  return svg;
}

function placed(value: number, axis: Axis): string {
  return axis.kind === "time" ? time(value) : number(value);
}

function legend(names: string[], toggle?: (name: string) => void): HTMLElement | null {
  if (names.length < 2) return null;
  return h("ul", { class: "legend" }, ...names.map((name, place) => {
    const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colour(place);
    if (!toggle) return h("li", {}, swatch, name || "all");
    const pressed = !shown.hidden.has(name);
    return h("li", {}, h("button", { type: "button", class: "link", "aria-pressed": String(pressed), title: "show or hide", click: () => toggle(name) }, swatch, name || "all"));
  }));
}

type Row = (string | number | null | Node)[];

/** A chart that is drawn when it comes into view, and its numbers as a table on request. */
function figure(
  title: string,
  note: string,
  legend: HTMLElement | null,
  make: (place: Element) => Element,
  head: string[],
  rows: Row[],
  open?: (episode: string) => void,
): HTMLElement {
  const chart = h("div", { class: "chart", role: "img", "aria-label": visible(`${title}. ${note}`) });
  const table = scrolling(`${title} (numbers)`);
  const details = h("details", {
    toggle: () => {
      if (details.open && !table.firstChild) append(table, numbers(head, rows, open));
    },
  }, h("summary", {}, "Numbers"), table);
  whenSeen(chart, () => replace(chart, make(chart)));
  return h("figure", {}, h("figcaption", {}, h("h3", {}, title)), legend, chart, h("p", { class: "note" }, note), details);
}

const MOST_ROWS = 1000;

function numbers(head: string[], rows: Row[], open?: (episode: string) => void): HTMLElement {
  const last = head.length - 1;
  const body = rows.slice(0, MOST_ROWS).map((row) => h("tr", {}, ...row.map((value, place) => {
    if (open && place === last) return h("td", {}, h("button", { type: "button", class: "link", click: () => open(String(value)) }, String(value).slice(0, 8)));
    return h("td", {}, typeof value === "number" ? number(value) : value);
  })));
  const more = rows.length > MOST_ROWS ? h("caption", {}, `The first ${MOST_ROWS.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows.`) : null;
  return h("table", {}, more, h("thead", {}, h("tr", {}, ...head.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...body));
}

const observer = typeof IntersectionObserver === "undefined" ? null : new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    observer?.unobserve(entry.target);
    waiting.get(entry.target)?.();
    waiting.delete(entry.target);
  }
}, { rootMargin: "400px" });
const waiting = new Map<Element, () => void>();

function whenSeen(element: Element, make: () => void): void {
  if (!observer) return make();
  waiting.set(element, make);
  observer.observe(element);
}

/** Draws what was not seen yet: a printed page shows everything. */
addEventListener("beforeprint", () => {
  for (const make of waiting.values()) make();
  waiting.clear();
});

export function svgElement(name: string, attributes: { [name: string]: string | number }): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}
