/** Two episodes side by side, step by step, with the first difference. */

import type { Content, Episode, Step, Tokens } from "./data";
import { h, link } from "./dom";
import { cell } from "./format";
import { step } from "./episode";
import { episodeAddress } from "./state";

const STEPS = 200;

export function comparePage(one: Episode, other: Episode): HTMLElement {
  const count = Math.max(one.steps.length, other.steps.length);
  const differences = Array.from({ length: count }, (_, place) => difference(one.steps[place], other.steps[place]));
  const first = differences.findIndex((found) => found !== "");
  const rows = differences.slice(0, STEPS).map((found, place) => pair(one.steps[place], other.steps[place], place, found, place === first));
  const verdict = first < 0 ? "All steps are equal in observation, action and reward." : `The first difference is in step ${first}: ${differences[first]}.`;
  const page = h("div", { class: "compare" },
    h("h1", {}, "Side by side"),
    h("p", { class: "message plain" }, verdict, " ", first < 0 ? null : h("button", { type: "button", click: () => page.querySelector(".first")?.scrollIntoView({ block: "center" }) }, "Go there")),
    facts(one, other),
    h("div", { class: "pairs" }, ...rows),
    count > STEPS ? h("p", { class: "note" }, `The first ${STEPS} of ${count.toLocaleString("en")} steps.`) : null);
  return page;
}

function facts(one: Episode, other: Episode): HTMLElement {
  const value = (found: Episode, label: string): string => {
    const fact = found.facts.find((item) => item.label === label);
    return fact ? `${cell(fact.value)}${fact.detail ? ` (${fact.detail})` : ""}` : "";
  };
  const labels = [...new Set([...one.facts, ...other.facts].map((fact) => fact.label))];
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), ...[one, other].map((found) => h("th", { scope: "col" }, link(episodeAddress(found.trace_id), found.trace_id.slice(0, 8)), ` ${found.title}`)))),
    h("tbody", {}, ...labels.map((label) => {
      const [left, right] = [value(one, label), value(other, label)];
      return h("tr", { class: left === right ? null : "differs" }, h("th", { scope: "row" }, left === right ? label : `≠ ${label}`), h("td", {}, left), h("td", {}, right));
    }))));
}

function pair(one: Step | undefined, other: Step | undefined, place: number, found: string, first: boolean): HTMLElement {
  const side = (of: Step | undefined, prefix: string): HTMLElement => (of ? h("ol", { class: "steps" }, step(of, place, prefix)) : h("p", { class: "note" }, "no such step"));
  return h("div", { class: `pair${first ? " first" : ""}${found ? " differs" : ""}` },
    found ? h("p", { class: "difference" }, `${first ? "First difference: " : "≠ "}${found}`) : null,
    side(one, "left"), side(other, "right"));
}

/** What differs between two steps, in words; empty if nothing does. */
export function difference(one: Step | undefined, other: Step | undefined): string {
  if (!one || !other) return "only one episode has this step";
  const found: string[] = [];
  if (text(one.observation) !== text(other.observation)) found.push("observation");
  const token = firstToken(one.tokens, other.tokens);
  if (text(one.action) !== text(other.action)) found.push(token === null ? "action" : `action, from token ${token} of the completion`);
  else if (token !== null) found.push(`token ${token} of the completion`);
  if (one.reward !== other.reward || one.reward_status !== other.reward_status) found.push("reward");
  if (calls(one) !== calls(other)) found.push("calls");
  return found.join(", ");
}

function text(content: Content | null): string {
  return content === null ? "" : JSON.stringify(content);
}

function calls(found: Step): string {
  return JSON.stringify(found.calls.map((call) => [call.kind, call.name, call.input, call.output, call.error]));
}

/** The first completion token whose ids differ; null if none does or ids are lacking. */
function firstToken(one: Tokens | null, other: Tokens | null): number | null {
  if (!one || !other) return null;
  const [left, right] = [one.ids.slice(one.prompt_length), other.ids.slice(other.prompt_length)];
  for (let place = 0; place < Math.max(left.length, right.length); place++) if (left[place] !== right[place]) return place;
  return null;
}
