// Slack's mrkdwn as DOM nodes: *bold*, _italic_, ~strike~, `code`, ```blocks```, > quotes, and the <…> marks.

import { el, safeLink } from "/page/dom.js";

const EMOJI = {
  eyes: "👀", white_check_mark: "✅", heavy_check_mark: "✔️", x: "❌", warning: "⚠️", rotating_light: "🚨",
  hourglass: "⌛", hourglass_flowing_sand: "⏳", large_green_circle: "🟢", large_yellow_circle: "🟡",
  red_circle: "🔴", white_circle: "⚪", "+1": "👍", thumbsup: "👍", "-1": "👎", tada: "🎉", rocket: "🚀",
  fire: "🔥", wave: "👋", raised_hand: "✋", no_entry: "⛔", question: "❓", bell: "🔔", no_bell: "🔕",
  arrows_counterclockwise: "🔄", wrench: "🔧", bulb: "💡", lock: "🔒", zzz: "💤", robot_face: "🤖",
};

export const emoji = (name) => EMOJI[name] ?? `:${name}:`;

const INLINE = new RegExp(
  [
    "`([^`\\n]+)`",
    "<([^<>]*)>",
    "(?<![\\w*])\\*(?=\\S)([^*\\n]*[^*\\s])\\*(?![\\w*])",
    "(?<![\\w_])_(?=\\S)([^_\\n]*[^_\\s])_(?![\\w_])",
    "(?<![\\w~])~(?=\\S)([^~\\n]*[^~\\s])~(?![\\w~])",
    "(?<!\\w):([a-z0-9_+-]{1,60}):(?!\\w)",
  ].join("|"),
  "g",
);

const unescape = (text) => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");

// `names` finds who and what is meant: {user(id), channel(id), me}.
export function mrkdwn(text, names) {
  const pieces = text.split(/```\n?([\s\S]*?)\n?```\n?/);
  return pieces.flatMap((piece, index) =>
    index % 2 ? [el("pre", {}, plainMarks(piece, names))] : quoted(piece, names),
  );
}

function quoted(text, names) {
  const nodes = [];
  let quote = null;
  text.split("\n").forEach((line, index) => {
    const found = /^(?:&gt;|>) ?(.*)$/.exec(line);
    if (found) {
      if (quote) quote.append(el("br"));
      else nodes.push((quote = el("blockquote")));
      quote.append(...inline(found[1], names));
      return;
    }
    if (index && !quote) nodes.push(el("br"));
    quote = null;
    nodes.push(...inline(line, names));
  });
  return nodes;
}

function inline(text, names) {
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > end) nodes.push(unescape(text.slice(end, found.index)));
    const [whole, code, mark, bold, italic, strike, sign] = found;
    if (code !== undefined) nodes.push(el("code", {}, plainMarks(code, names)));
    else if (mark !== undefined) nodes.push(marked(mark, names));
    else if (bold !== undefined) nodes.push(el("strong", {}, inline(bold, names)));
    else if (italic !== undefined) nodes.push(el("em", {}, inline(italic, names)));
    else if (strike !== undefined) nodes.push(el("s", {}, inline(strike, names)));
    else nodes.push(emoji(sign));
    end = found.index + whole.length;
  }
  if (end < text.length) nodes.push(unescape(text.slice(end)));
  return nodes;
}

// Inside code only the <…> marks are live, as in Slack.
function plainMarks(text, names) {
  return text.split(/<([^<>]*)>/).map((piece, index) => (index % 2 ? marked(piece, names) : unescape(piece)));
}

function marked(mark, names) {
  const [target, label] = [mark.split("|")[0], mark.includes("|") ? mark.slice(mark.indexOf("|") + 1) : ""];
  if (target.startsWith("@")) return mention(target.slice(1), names);
  if (target.startsWith("#")) return el("span", { class: "mention" }, `#${label || names.channel(target.slice(1))}`);
  if (target.startsWith("!date^")) return moment(target, unescape(label));
  if (target.startsWith("!")) return el("span", { class: "mention loud" }, `@${target.slice(1).split("^")[0]}`);
  return safeLink(unescape(target), unescape(label || target));
}

export function mention(id, names) {
  return el("span", { class: id === names.me ? "mention me" : "mention" }, `@${names.user(id)}`);
}

function moment(target, fallback) {
  const [, seconds, format, link] = target.split("^");
  const at = new Date(Number(seconds) * 1000);
  if (Number.isNaN(at.getTime())) return fallback;
  const text = dated(at, format);
  const time = el("time", { datetime: at.toISOString(), title: at.toLocaleString() }, text);
  return link ? safeLink(link, time) : time;
}

export function dated(at, format) {
  const day = (options) => at.toLocaleDateString([], options);
  const pretty = (options) => nearDay(at) ?? day(options);
  const short = { month: "short", day: "numeric", year: "numeric" };
  const long = { weekday: "long", month: "long", day: "numeric", year: "numeric" };
  const plain = { month: "long", day: "numeric", year: "numeric" };
  const words = {
    date_num: () => at.toISOString().slice(0, 10),
    date: () => day(plain), date_short: () => day(short), date_long: () => day(long),
    date_pretty: () => pretty(plain), date_short_pretty: () => pretty(short), date_long_pretty: () => pretty(long),
    time: () => at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
    time_secs: () => at.toLocaleTimeString([], { hourCycle: "h23" }),
    ago: () => ago(at),
  };
  return format.replace(/\{([a-z_]+)\}/g, (whole, word) => words[word]?.() ?? whole);
}

export function nearDay(at) {
  const start = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
  const days = Math.round((start(at) - start(new Date())) / 86_400_000);
  return { "-1": "yesterday", 0: "today", 1: "tomorrow" }[days];
}

function ago(at) {
  const minutes = Math.round((Date.now() - at.getTime()) / 60_000);
  if (Math.abs(minutes) < 1) return "just now";
  const [count, unit] = Math.abs(minutes) < 60 ? [minutes, "minute"] : [Math.round(minutes / 60), "hour"];
  return new Intl.RelativeTimeFormat([], { numeric: "auto" }).format(-count, unit);
}
