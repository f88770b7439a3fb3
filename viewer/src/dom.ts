/** Elements and text: every text of a recording goes through `visible`, and is set as text. */

export type Child = Node | string | number | null | undefined | false;
type Attributes = { [name: string]: string | number | boolean | null | undefined | ((event: never) => void) };

/** An element; attributes that are functions are listeners, and null, undefined and false are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value as EventListener);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, ...children);
  return element;
}

export function append(parent: Element, ...children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : visible(String(child)));
  }
}

export function replace(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, ...children);
}

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Text with control characters and characters that change its direction written as escapes. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (found) => {
    const code = found.charCodeAt(0);
    if (code === 13) return "";
    return code < 32 ? String.fromCharCode(0x2400 + code) : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  });
}

export function link(href: string, text: string, title?: string): HTMLAnchorElement {
  return h("a", { href, title }, text);
}

/** What scrolls by itself, by keys, too. */
export function scrolling(label: string, ...children: Child[]): HTMLElement {
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": visible(label) }, ...children);
}

const plain = (text: string): HTMLElement => h("pre", { class: "text" }, text);

const MOST_LINES = 30;

/** A text that is folded where it is long, at the end of a paragraph if one is near. */
export function folded(text: string, show: (text: string) => HTMLElement = plain, limit = 1200): HTMLElement {
  const lines = text.split("\n"), room = Math.min(limit, lines.slice(0, MOST_LINES).join("\n").length);
  if (text.length <= room) return show(text);
  const paragraph = text.lastIndexOf("\n\n", room), end = paragraph > room / 2 ? paragraph : room;
  const details = h(
    "details",
    {
      toggle: () => {
        if (details.open && details.childElementCount === 1) append(details, show(text.slice(end)));
      },
    },
    h("summary", {}, `${(text.length - end).toLocaleString("en")} more characters`),
  );
  return h("div", {}, show(text.slice(0, end)), details);
}
