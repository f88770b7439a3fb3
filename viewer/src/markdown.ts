/** Texts as Markdown: headings, lists, quotes, tables, code, emphasis. Markup of HTML stays text, line breaks stay. */

import { type Child, h, scrolling } from "./dom";

const BLOCK = /^\s*(```|~~~|#{1,6}\s|>|[-*+]\s|\d+[.)]\s)/;
const INLINE = /(`+)([^`\n]+)\1|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;

/** A text as Markdown. */
export function markdown(text: string): HTMLElement {
  const lines = text.split("\n"), blocks: Child[] = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at] ?? "", fence = /^\s*(```+|~~~+)/.exec(line)?.[1];
    const take = (test: (line: string) => boolean): string[] => {
      const start = at++;
      while (at < lines.length && test(lines[at] ?? "")) at++;
      return lines.slice(start, at);
    };
    if (!line.trim()) at++;
    else if (fence) {
      blocks.push(h("pre", { class: "text code" }, take((one) => !one.trim().startsWith(fence)).slice(1).join("\n")));
      at++;
    } else if (/^\s*\|?[\s:|-]+$/.test(lines[at + 1] ?? "") && line.includes("|") && (lines[at + 1] ?? "").includes("-")) {
      blocks.push(table(take((one) => one.includes("|"))));
    } else if (/^#{1,6}\s/.test(line)) {
      blocks.push(h("p", { class: "heading" }, h("b", {}, ...inline(line.replace(/^#+\s+/, "")))));
      at++;
    } else if (/^\s*([-*+]|\d+[.)])\s/.test(line)) blocks.push(h("ul", {}, ...take((one) => /^\s*([-*+]|\d+[.)])\s/.test(one)).map(item)));
    else if (/^\s*>/.test(line)) blocks.push(h("blockquote", {}, ...inline(take((one) => /^\s*>/.test(one)).map((one) => one.replace(/^\s*> ?/, "")).join("\n"))));
    else blocks.push(h("p", {}, ...inline(take((one) => one.trim() !== "" && !BLOCK.test(one)).join("\n"))));
  }
  return h("div", { class: "markdown" }, ...blocks);
}

const SHORT = 80;

/** A text of JSON, indented unless it is short; null for any other text. */
export function asJson(text: string): string | null {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    const value: unknown = JSON.parse(text);
    return text.length <= SHORT ? text : JSON.stringify(value, null, 1);
  } catch {
    return null;
  }
}

function item(line: string): HTMLElement {
  const [, space = "", mark = "", text = ""] = /^(\s*)([-*+]|\d+[.)])\s+(.*)$/.exec(line) ?? ["", "", "", line.trim()];
  const element = h("li", {}, /\d/.test(mark) ? `${mark} ` : "• ", ...inline(text));
  element.style.marginLeft = `${Math.min(space.length, 12) / 2}em`;
  return element;
}

function table(lines: string[]): HTMLElement {
  const cells = (line: string): string[] => line.trim().replace(/^\||\|$/g, "").split("|").map((one) => one.trim());
  const [head = "", , ...rows] = lines;
  return scrolling("Table", h("table", {}, h("thead", {}, h("tr", {}, ...cells(head).map((one) => h("th", { scope: "col" }, ...inline(one))))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...cells(row).map((one) => h("td", {}, ...inline(one))))))));
}

function inline(text: string): Child[] {
  const parts: Child[] = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    const [whole, , code, bold, slanted, name, address] = found;
    parts.push(text.slice(end, found.index));
    parts.push(code !== undefined ? h("code", {}, code) : bold !== undefined ? h("b", {}, bold) : slanted !== undefined ? h("i", {}, slanted) : h("a", { href: address, title: address, rel: "noreferrer noopener", target: "_blank" }, name));
    end = found.index + whole.length;
  }
  return [...parts, text.slice(end)];
}
