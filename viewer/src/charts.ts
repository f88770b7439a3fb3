/** Charts as SVG with a title, a note on the method, and a table of their numbers. */

import * as Plot from "@observablehq/plot";
import type { Axis, Histogram, Lines, Scatter } from "./data";
import { append, h, replace, visible } from "./dom";
import { number, time } from "./format";

/** Okabe and Ito's palette, which people with colour blindness tell apart; black last, drawn as the text colour. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a900", "currentColor"];
const HEIGHT = 230;

export function colour(place: number): string {
  return COLOURS[place % COLOURS.length] ?? "currentColor";
}

interface Point { x: number; y: number | null; low: number | null; high: number | null; name: string }

/** What the reader chose for all curves: the axis, a logarithmic scale, and the names that are hidden. */
const chosen = { axis: "", log: false, hidden: new Set<string>() };
const CHOSEN = new EventTarget();

/** Curves with their bands; over one of several axes, with a linear or logarithmic scale, without those that are hidden. */
export function lines(block: Lines): HTMLElement {
  if (!block.views) return oneAxis(block);
  const place = h("div", { class: "curves-of" });
  const show = (): void => {
    const view = block.views?.find((one) => one.axis === chosen.axis) ?? block.views?.[0];
    const focused = [...place.querySelectorAll("button")].findIndex((one) => one === document.activeElement);
    replace(place, oneAxis({ ...block, ...view }, true));
    place.querySelectorAll("button")[focused]?.focus();
  };
  CHOSEN.addEventListener("change", () => { if (place.isConnected) show(); });
  show();
  return place;
}

/** The choices for the curves of a page. */
export function curveChoices(blocks: Lines[]): HTMLElement | null {
  const axes = [...new Set(blocks.flatMap((block) => block.views?.map((view) => view.axis) ?? []))];
  if (!axes.length) return null;
  const select = h("select", { "aria-label": "horizontal axis", change: () => { chosen.axis = select.value; CHOSEN.dispatchEvent(new Event("change")); } },
    h("option", { value: "" }, "as it is usual"), ...axes.map((axis) => h("option", { value: axis, selected: axis === chosen.axis }, axis)));
  const log = h("input", { type: "checkbox", checked: chosen.log, change: () => { chosen.log = log.checked; CHOSEN.dispatchEvent(new Event("change")); } });
  return h("p", { class: "tools" }, h("label", {}, "over ", select), h("label", {}, log, " logarithmic scale"));
}

function oneAxis(block: Lines, hides = false): HTMLElement {
  const names = block.series.map((one) => one.name);
  const shownSeries = block.series.filter((one) => !hides || !chosen.hidden.has(one.name));
  const points: Point[] = shownSeries.flatMap((one) =>
    one.x.map((x, place) => ({
      x,
      y: one.y[place] ?? null,
      low: one.low?.[place] ?? null,
      high: one.high?.[place] ?? null,
      name: one.name,
    })),
  );
  const banded = points.filter((one) => one.low !== null && one.high !== null);
  const dots = points.filter((one) => one.y !== null && shownSeries.some((found) => found.name === one.name && found.dots));
  const log = hides && chosen.log && points.every((one) => one.y === null || one.y > 0);
  const marks: Plot.Markish[] = [
    Plot.areaY(log ? banded.filter((one) => (one.low ?? 0) > 0) : banded, { x: "x", y1: "low", y2: "high", z: "name", fill: "name", fillOpacity: 0.18 }),
    Plot.lineY(points, { x: "x", y: "y", z: "name", stroke: "name", strokeWidth: 1.6 }),
    Plot.dot(dots, { x: "x", y: "y", fill: "name", r: 2 }),
    Plot.tip(
      points.filter((one) => one.y !== null),
      Plot.pointerX({ x: "x", y: "y", title: (one: Point) => tip(one, block, names.length > 1) }),
    ),
  ];
  const rows = points.map((one) => [one.name, shown(one.x, block.x), one.y, one.low, one.high]);
  const head = ["series", block.x.label, block.y.label, "low", "high"];
  const toggle = hides ? (name: string): void => {
    if (!chosen.hidden.delete(name)) chosen.hidden.add(name);
    CHOSEN.dispatchEvent(new Event("change"));
  } : undefined;
  return figure(block.title, block.note, legend(names, toggle), (place) => draw(place, marks, block.x, block.y, names, log), head, rows);
}

function tip(one: Point, block: Lines, named: boolean): string {
  const band = one.low === null || one.high === null ? "" : ` [${number(one.low)}, ${number(one.high)}]`;
  const words = [named ? one.name : "", `${block.x.label} ${shown(one.x, block.x)}`, `${number(one.y ?? NaN)}${band}`];
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

function draw(place: Element, marks: Plot.Markish[], x: Axis, y: Axis, names: string[], log = false): Element {
  const width = Math.max(260, place.clientWidth);
  const svg = Plot.plot({
    width,
    height: HEIGHT,
    marginLeft: 56,
    x: { label: x.label, type: x.kind === "time" ? "utc" : "linear", nice: x.kind !== "time", ticks: width / 90 },
    y: { label: y.label, type: log ? "log" : "linear", grid: true, nice: true, ticks: 5, tickFormat: (value: number) => number(value) },
    color: { domain: names, range: names.map((_, place) => colour(place)) },
    marks,
  });
  // The rules of this style element are in the style sheet: a policy against inline styles would refuse it.
  for (const style of svg.querySelectorAll("style")) style.remove();
  return svg;
}

function shown(value: number, axis: Axis): string {
  return axis.kind === "time" ? time(value) : number(value);
}

function legend(names: string[], toggle?: (name: string) => void): HTMLElement | null {
  if (names.length < 2) return null;
  return h("ul", { class: "legend" }, ...names.map((name, place) => {
    const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colour(place);
    if (!toggle) return h("li", {}, swatch, name || "all");
    const pressed = !chosen.hidden.has(name);
    return h("li", {}, h("button", { type: "button", class: "link", "aria-pressed": String(pressed), title: "show or hide", click: () => toggle(name) }, swatch, name || "all"));
  }));
}

type Row = (string | number | null)[];

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
  const table = h("div", { class: "scroll" });
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
    return h("td", {}, value === null ? "" : typeof value === "number" ? number(value) : value);
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
