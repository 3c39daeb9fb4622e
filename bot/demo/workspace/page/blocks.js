// Block Kit as DOM nodes. `context` is {names, press(block_id, element, button)}.

import { el, safeLink } from "/page/dom.js";
import { emoji, mention, mrkdwn, dated } from "/page/mrkdwn.js";

const KINDS = {
  section: (block, context) =>
    el(
      "div",
      { class: "section" },
      el(
        "div",
        { class: "section-text" },
        block.text && el("div", {}, text(block.text, context)),
        block.fields && el("div", { class: "fields" }, block.fields.map((one) => el("div", {}, text(one, context)))),
      ),
      block.accessory && element(block, block.accessory, context),
    ),
  header: (block) => el("h3", { class: "block-header" }, block.text.text),
  divider: () => el("hr"),
  context: (block, context) =>
    el(
      "div",
      { class: "context" },
      block.elements.map((one) => (one.type === "image" ? picture(one, "icon") : el("span", {}, text(one, context)))),
    ),
  actions: (block, context) =>
    el("div", { class: "actions" }, block.elements.map((one) => element(block, one, context))),
  image: (block) =>
    el("figure", {}, block.title && el("figcaption", {}, block.title.text), picture(block, "picture")),
  markdown: (block, context) =>
    el("div", {}, mrkdwn(block.text.replaceAll(/\*\*(.+?)\*\*/g, "*$1*").replaceAll(/^#+ (.+)$/gm, "*$1*"), context.names)),
  rich_text: (block, context) => el("div", { class: "rich" }, block.elements.map((one) => rich(one, context))),
  table: (block, context) => table(block, context),
};

export function blocks(list, context) {
  return list.map((block) => KINDS[block.type]?.(block, context) ?? el("div", { class: "context" }, `(${block.type})`));
}

function text(object, context) {
  return object.type === "mrkdwn" ? mrkdwn(object.text, context.names) : lines(object.text);
}

const lines = (words) => words.split("\n").flatMap((line, index) => (index ? [el("br"), line] : [line]));

function element(block, one, context) {
  if (one.type === "image") return picture(one, "thumbnail");
  const button = el("button", {
    type: "button",
    class: one.style ?? "",
    "data-action": one.action_id,
    "data-block": block.block_id,
    "aria-label": one.accessibility_label,
    onclick: () => context.press(block.block_id, one, button),
  }, one.text.text);
  return button;
}

// Pictures come from this workspace only; one from elsewhere is told by its words and a link.
export function picture(one, kind) {
  if (!one.slack_file) return el("span", { class: "elsewhere" }, safeLink(one.image_url, one.alt_text));
  return shown(one.slack_file.id, one.alt_text, kind);
}

export const shown = (id, words, kind) =>
  el("img", { src: `/files/${encodeURIComponent(id)}`, alt: words, class: kind });

function table(block, context) {
  const align = (index) => block.column_settings?.[index]?.align ?? "left";
  const cell = (one, name, index) =>
    el(name, { class: align(index), scope: name === "th" ? "col" : undefined },
      one.type === "raw_text" ? one.text : one.elements.map((part) => rich(part, context)));
  const row = (cells, name) => el("tr", {}, cells.map((one, index) => cell(one, name, index)));
  const [head, ...body] = block.rows;
  return el(
    "div",
    { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    el("table", {}, el("thead", {}, row(head, "th")), el("tbody", {}, body.map((cells) => row(cells, "td")))),
  );
}

function rich(part, context) {
  const inside = () => part.elements.map((one) => richInline(one, context));
  if (part.type === "rich_text_preformatted") return el("pre", {}, inside());
  if (part.type === "rich_text_quote") return el("blockquote", {}, inside());
  if (part.type !== "rich_text_list") return el("div", {}, inside());
  const name = part.style === "ordered" ? "ol" : "ul";
  return el(name, { class: `indent-${part.indent ?? 0}` }, part.elements.map((one) => el("li", {}, rich(one, context))));
}

function richInline(one, context) {
  const words = {
    text: () => styled(lines(one.text), one.style),
    link: () => safeLink(one.url, styled(one.text || one.url, one.style)),
    emoji: () => emoji(one.name),
    user: () => mention(one.user_id, context.names),
    channel: () => el("span", { class: "mention" }, `#${context.names.channel(one.channel_id)}`),
    date: () => dated(new Date(one.timestamp * 1000), one.format),
  };
  return words[one.type]?.() ?? "";
}

function styled(words, style = {}) {
  const names = { bold: "strong", italic: "em", strike: "s", code: "code", underline: "u" };
  return Object.entries(names).reduce((node, [key, name]) => (style[key] ? el(name, {}, node) : node), words);
}
