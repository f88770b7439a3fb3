/** Two episodes side by side, step by step, with the first difference. */

import type { Call, Episode, Facts, Part, Step, Tokens } from "./data";
import { h, link, scrolling } from "./dom";
import { cell } from "./format";
import { messagesOf, step, stepsOf } from "./episode";
import { episodeAddress } from "./state";

const STEPS = 200;

export function comparePage(one: Episode, other: Episode): HTMLElement {
  const pairs = aligned(stepsOf(one), stepsOf(other));
  const differences = pairs.map(([left, right]) => difference(left, right));
  const first = differences.findIndex((found) => found !== "");
  const rows = differences.slice(0, STEPS).map((found, place) => pair(...(pairs[place] ?? [undefined, undefined]), place, found, place === first));
  const index = pairs[first]?.[0]?.index ?? pairs[first]?.[1]?.index;
  const verdict = first < 0 ? "All steps are equal in observation, action and reward." : `The first difference is in step ${index}: ${differences[first]}.`;
  const page = h("div", { class: "compare" },
    h("h1", {}, "Side by side"),
    h("p", { class: "message plain" }, verdict, " ", first < 0 ? null : h("button", { type: "button", click: () => page.querySelector(".first")?.scrollIntoView({ block: "center" }) }, "Go there")),
    facts(one, other),
    h("h2", {}, "Steps"),
    h("div", { class: "pairs" }, ...rows),
    pairs.length > STEPS ? h("p", { class: "note" }, `The first ${STEPS} of ${pairs.length.toLocaleString("en")} steps.`) : null);
  return page;
}

type Pair = [Step | undefined, Step | undefined];

/**
 * Pairs of steps: those with equal texts as actions, by their longest common subsequence, and the others between
 * them in order. Steps of other episodes are paired by their place: equal numbers of unlike steps mean nothing.
 */
export function aligned(one: Step[], other: Step[]): Pair[] {
  const pairs: Pair[] = [];
  const between = (left: Step[], right: Step[]): void => {
    for (let place = 0; place < Math.max(left.length, right.length); place++) pairs.push([left[place], right[place]]);
  };
  let [left, right] = [0, 0];
  for (const [i, j] of hasTexts(one) && hasTexts(other) ? common(one.map(action), other.map(action)) : []) {
    between(one.slice(left, i), other.slice(right, j));
    pairs.push([one[i], other[j]]);
    [left, right] = [i + 1, j + 1];
  }
  between(one.slice(left), other.slice(right));
  return pairs;
}

const MOST_CELLS = 250_000;

function hasTexts(steps: Step[]): boolean {
  const isText = (part: Part): boolean => part.type === "text" || part.type === "reasoning";
  return steps.every((one) => messagesOf(one, "action").every((each) => each.parts.every(isText)));
}

function action(found: Step): string {
  return `${found.agent} ${text(found, "action")}`;
}

/** Places of a longest common subsequence; none for lists too long to compare. */
export function common(one: string[], other: string[]): [number, number][] {
  if (one.length * other.length > MOST_CELLS) return [];
  const width = other.length + 1;
  const lengths = new Uint16Array((one.length + 1) * width);
  const at = (i: number, j: number): number => lengths[i * width + j] ?? 0;
  for (let i = one.length - 1; i >= 0; i--)
    for (let j = other.length - 1; j >= 0; j--)
      lengths[i * width + j] = one[i] === other[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const found: [number, number][] = [];
  for (let i = 0, j = 0; i < one.length && j < other.length;) {
    if (one[i] === other[j]) found.push([i++, j++]);
    else if (at(i + 1, j) >= at(i, j + 1)) i++;
    else j++;
  }
  return found;
}

function facts(one: Episode, other: Episode): HTMLElement {
  const items = (found: Episode): Facts["items"] => found.blocks.flatMap((block) => ("type" in block ? [block] : block.id === "facts" ? block.blocks : [])).flatMap((block) => (block.type === "facts" ? block.items : []));
  const value = (found: Episode, label: string): string => {
    const fact = items(found).find((item) => item.label === label);
    return fact ? `${cell(fact.value)}${fact.detail ? ` (${fact.detail})` : ""}` : "";
  };
  const labels = [...new Set([...items(one), ...items(other)].map((fact) => fact.label))];
  return scrolling("Facts (table)", h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "fact"), ...[one, other].map((found) => h("th", { scope: "col" }, link(episodeAddress(found.trace_id), found.trace_id.slice(0, 8)), ` ${found.title}`)))),
    h("tbody", {}, ...labels.map((label) => {
      const [left, right] = [value(one, label), value(other, label)];
      return h("tr", { class: left === right ? null : "differs" }, h("th", { scope: "row" }, left === right ? label : `≠ ${label}`), h("td", {}, left), h("td", {}, right));
    }))));
}

function pair(one: Step | undefined, other: Step | undefined, place: number, found: string, first: boolean): HTMLElement {
  const side = (of: Step | undefined, prefix: string): HTMLElement => (of ? h("ol", { class: "steps" }, step(of, `${prefix}-${place}`)) : h("p", { class: "note" }, "no such step"));
  return h("div", { class: `pair${first ? " first" : ""}${found ? " differs" : ""}` },
    found ? h("p", { class: "difference" }, `${first ? "First difference: " : "≠ "}${found}`) : null,
    side(one, "left"), side(other, "right"));
}

/** What differs between two steps, in words; empty if nothing does. */
export function difference(one: Step | undefined, other: Step | undefined): string {
  if (!one || !other) return "only one episode has this step";
  const found: string[] = [];
  if (text(one, "observation") !== text(other, "observation")) found.push("observation");
  const token = firstToken(tokensOf(one), tokensOf(other));
  if (text(one, "action") !== text(other, "action")) found.push(token === null ? "action" : `action, from token ${token} of the completion`);
  else if (token !== null) found.push(`token ${token} of the completion`);
  if (one.reward !== other.reward || one.reward_status !== other.reward_status) found.push("reward");
  if (calls(one) !== calls(other)) found.push("calls");
  return found.join(", ");
}

/** What was seen or done, without what its calls took. */
function text(found: Step, part: string): string {
  return JSON.stringify(messagesOf(found, part).map((one) => [one.role, one.name, one.parts, one.blocks.map(asked)]));
}

function asked(found: Call): unknown[] {
  return [found.title, found.blocks.filter((one) => one.part !== "result").map((one) => one.parts)];
}

function calls(found: Step): string {
  const made = found.blocks.flatMap((one): Call[] => (one.type === "call" ? [one] : one.type === "message" ? one.blocks : []));
  return JSON.stringify(made.map((one) => [one.title, one.error, one.blocks.map((each) => each.parts)]));
}

function tokensOf(found: Step): Tokens | null {
  return found.blocks.find((one): one is Tokens => one.type === "tokens") ?? null;
}

/** The first completion token whose ids differ; null if none does or ids are lacking. */
function firstToken(one: Tokens | null, other: Tokens | null): number | null {
  if (!one || !other) return null;
  const [left, right] = [one.ids.slice(one.prompt_length), other.ids.slice(other.prompt_length)];
  for (let place = 0; place < Math.max(left.length, right.length); place++) if (left[place] !== right[place]) return place;
  return null;
}
