// The page: one channel at a time, its threads, and a composer for whoever one speaks as.

import { ask, complain } from "/page/asking.js";
import { blocks, shown } from "/page/blocks.js";
import { watchReadiness } from "/page/breaker.js";
import { byId, el } from "/page/dom.js";
import { emoji, mrkdwn, nearDay } from "/page/mrkdwn.js";

const state = { channels: new Map(), people: [], bots: [], channel: "", me: "", thread: null };
const TOGETHER = 300; // seconds in which one person's messages share a head

// ---- talking to the workspace

function listen() {
  const stream = new EventSource("/stream");
  stream.onopen = () => (byId("lost").hidden = true);
  stream.onerror = () => (byId("lost").hidden = false);
  stream.onmessage = (event) => take(JSON.parse(event.data));
}

function take(news) {
  if (news.kind === "all") return takeAll(news);
  const { message } = news;
  const messages = state.channels.get(message.channel).messages;
  if (news.kind === "deleted") messages.delete(message.ts);
  else messages.set(message.ts, message);
  if (message.channel !== state.channel) return;
  const isMine = news.kind === "posted" && message.user === state.me;
  if (news.kind === "posted" && !message.thread_ts) return appended(message, isMine);
  if (message.thread_ts) {
    refresh(message.thread_ts);
    if (state.thread === message.thread_ts) drawThread(isMine);
  } else {
    refresh(message.ts);
    if (news.kind === "deleted") drawChannel();
    if (state.thread === message.ts) drawThread(false);
  }
}

function takeAll(news) {
  state.people = news.people;
  state.bots = news.bots;
  state.channels = new Map(
    news.channels.map((one) => [one.id, { ...one, messages: new Map(one.messages.map((post) => [post.ts, post])) }]),
  );
  if (!state.channels.has(state.channel)) state.channel = news.channels[0].id;
  const wanted = new URLSearchParams(location.search).get("as") ?? remembered();
  state.me = state.me || (news.people.some((one) => one.name === wanted) ? wanted : news.people[0].name);
  drawSides();
  drawChannel(true);
  if (state.thread) drawThread(true);
}

function remembered() {
  try {
    return localStorage.getItem("speak-as");
  } catch {
    return null;
  }
}

// ---- names

const everybody = () => [...state.people, ...state.bots];
const names = {
  get me() {
    return state.people.find((one) => one.name === state.me)?.id;
  },
  user: (id) => everybody().find((one) => one.id === id)?.name ?? id,
  channel: (id) => state.channels.get(id)?.name ?? id,
};

const hue = (name) => `hue-${Math.max(0, state.people.findIndex((one) => one.name === name)) % 6}`;
const avatar = (name, isBot) =>
  el("span", { class: `avatar ${isBot ? "bot" : hue(name)}`, "aria-hidden": "true" }, isBot ? "↑" : name[0].toUpperCase());

// ---- messages

const here = () => [...state.channels.get(state.channel).messages.values()];
const isSeen = (message) => !message.ephemeral_to || message.ephemeral_to === state.me;
const topLevel = () => here().filter((one) => !one.thread_ts && isSeen(one));
const replies = (ts) => here().filter((one) => one.thread_ts === ts && isSeen(one));

function clock(ts) {
  const at = new Date(Number(ts) * 1000);
  return el(
    "time",
    { datetime: at.toISOString(), title: at.toLocaleString() },
    at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
  );
}

// Plain words of one person stand together under one head; what has blocks or is for one pair of eyes stands alone.
const isPlain = (one) => !one.blocks.length && !one.ephemeral_to;

function draw(message, before, inThread) {
  const isJoined =
    before && before.user === message.user && isPlain(before) && isPlain(message) &&
    Number(message.ts) - Number(before.ts) < TOGETHER && sameDay(before.ts, message.ts);
  const isPublic = !message.ephemeral_to;
  const head = el("div", { class: "head" },
    el("strong", {}, message.user), message.is_bot && el("span", { class: "badge" }, "APP"), clock(message.ts));
  return el(
    "article",
    {
      class: `message${isJoined ? " joined" : ""}${message.ephemeral_to ? " ephemeral" : ""}`,
      "data-ts": message.ts,
      "aria-label": `${message.user} says`,
    },
    !isPublic && el("div", { class: "only-you" }, "👁 Only visible to you"),
    el("div", { class: "margin" }, isJoined ? clock(message.ts) : avatar(message.user, message.is_bot)),
    el("div", { class: "body" }, !isJoined && head, content(message), signs(message), !inThread && threadLink(message)),
    !inThread && isPublic && el("button", {
      class: "quiet reply", type: "button", "aria-label": "Reply in thread", title: "Reply in thread",
      onclick: () => openThread(message.ts),
    }, "💬"),
  );
}

function content(message) {
  const context = { names, press: (block, element, button) => press(message, block, element, button) };
  const mark = message.is_marked_edited && el("small", { class: "edited" }, " (edited)");
  const words = message.blocks.length
    ? blocks(message.blocks, context)
    : [el("div", { class: "section" }, el("div", { class: "section-text" }, mrkdwn(message.text, names), mark))];
  const files = message.files.map((file) =>
    file.mimetype.startsWith("image/")
      ? el("figure", {}, el("figcaption", {}, file.title), shown(file.id, file.title, "picture"))
      : el("a", { href: `/files/${encodeURIComponent(file.id)}`, download: file.name }, `📄 ${file.title}`),
  );
  return el("div", { class: "content" }, message.text || message.blocks.length ? words : [], files);
}

function signs(message) {
  if (!message.reactions.length) return null;
  return el("div", { class: "signs" }, message.reactions.map((one) =>
    el("span", { class: "sign", title: `${one.users.join(", ")} reacted with :${one.name}:` },
      emoji(one.name), el("small", {}, String(one.count)))));
}

function threadLink(message) {
  const found = replies(message.ts);
  if (!found.length) return null;
  const said = [...new Set(found.map((one) => one.user))].slice(0, 3);
  const isBot = (name) => state.bots.some((one) => one.name === name);
  return el("button", { class: "thread-link", type: "button", onclick: () => openThread(message.ts) },
    said.map((name) => avatar(name, isBot(name))),
    el("b", {}, `${found.length} ${found.length === 1 ? "reply" : "replies"}`),
    el("span", {}, "last at ", clock(found.at(-1).ts)));
}

const day = (ts) => new Date(Number(ts) * 1000);
const sameDay = (one, other) => day(one).toDateString() === day(other).toDateString();

function dayLine(ts) {
  const near = nearDay(day(ts));
  const words = near ? near[0].toUpperCase() + near.slice(1)
    : day(ts).toLocaleDateString([], { weekday: "long", month: "long", day: "numeric" });
  return el("div", { class: "day" }, el("span", {}, words));
}

function fill(box, messages, inThread) {
  const nodes = [];
  messages.forEach((message, index) => {
    const before = messages[index - 1];
    if (!inThread && (!before || !sameDay(before.ts, message.ts))) nodes.push(dayLine(message.ts));
    nodes.push(draw(message, before, inThread));
    if (inThread && index === 0 && messages.length > 1) {
      const count = messages.length - 1;
      nodes.push(el("div", { class: "count" }, `${count} ${count === 1 ? "reply" : "replies"}`));
    }
  });
  box.replaceChildren(...nodes);
}

function drawChannel(toEnd = false) {
  const box = byId("messages");
  const isLow = toEnd || atEnd(box);
  const messages = topLevel();
  fill(box, messages, false);
  if (!messages.length) box.append(welcome());
  if (isLow) toBottom(box);
}

function welcome() {
  const chip = (words) => el("button", { type: "button", onclick: () => say(words) }, words);
  return el("div", { class: "welcome" },
    el("h2", {}, `This is #${names.channel(state.channel)}`),
    el("p", {}, "Say something to the bot, or try one of these:"),
    el("div", { class: "actions" }, chip("up?"), chip("status"), chip("help")));
}

function appended(message, isMine) {
  if (!isSeen(message)) return;
  const box = byId("messages");
  const isLow = isMine || atEnd(box);
  box.querySelector(".welcome")?.remove();
  const before = topLevel().at(-2);
  if (!before || !sameDay(before.ts, message.ts)) box.append(dayLine(message.ts));
  box.append(draw(message, before, false));
  if (isLow) toBottom(box);
  else byId("newer").hidden = false;
}

// A message that changed is drawn anew in its place; the keyboard stays on the button that it was on.
function refresh(ts) {
  const box = byId("messages");
  const old = box.querySelector(`[data-ts="${CSS.escape(ts)}"]`);
  const messages = topLevel();
  const index = messages.findIndex((one) => one.ts === ts);
  if (!old || index < 0) return;
  const isLow = atEnd(box);
  const focused = old.contains(document.activeElement) ? document.activeElement.dataset.action : null;
  const fresh = draw(messages[index], messages[index - 1], false);
  old.replaceWith(fresh);
  if (focused) fresh.querySelector(`[data-action="${CSS.escape(focused)}"]`)?.focus();
  if (isLow) toBottom(box);
}

const atEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 80;

function toBottom(box) {
  box.isLow = true;
  box.scrollTop = box.scrollHeight;
  if (box.id === "messages") byId("newer").hidden = true;
}

// ---- threads

function openThread(ts) {
  state.thread = ts;
  byId("thread").hidden = false;
  document.body.classList.add("with-thread");
  byId("thread-channel").textContent = `#${names.channel(state.channel)}`;
  drawThread(true);
  byId("thread-composer").querySelector("textarea").focus();
}

function closeThread() {
  state.thread = null;
  byId("thread").hidden = true;
  document.body.classList.remove("with-thread");
  byId("composer").querySelector("textarea").focus();
}

function drawThread(toEnd) {
  const box = byId("thread-messages");
  const isLow = toEnd || atEnd(box);
  const parent = here().find((one) => one.ts === state.thread);
  fill(box, [...(parent ? [parent] : []), ...replies(state.thread)], true);
  if (isLow) toBottom(box);
}

// ---- saying and pressing

async function say(text, thread) {
  const slash = !thread && /^(\/[a-z0-9_-]+)(?:\s+([\s\S]*))?$/.exec(text);
  const common = { channel: state.channel, user: state.me };
  const answer = slash
    ? await ask("/control/slash", { ...common, command: slash[1], text: slash[2] ?? "" })
    : await ask("/control/say", { ...common, text, ...(thread && { thread }) });
  if (!answer.ok) complain(answer.reason);
  return answer.ok;
}

async function press(message, block, element, button) {
  if (element.confirm && !(await confirmed(element.confirm))) return;
  button.disabled = true;
  button.classList.add("waiting");
  const answer = await ask("/control/press", {
    channel: state.channel, user: state.me, message: message.ts, button: element.action_id, block_id: block,
  });
  button.disabled = false;
  button.classList.remove("waiting");
  if (!answer.ok) complain(`${element.text.text}: ${answer.reason}`);
}

function confirmed(question) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = question.title.text;
  byId("confirm-text").replaceChildren(
    ...(question.text.type === "mrkdwn" ? mrkdwn(question.text.text, names) : [question.text.text]),
  );
  const [go, deny] = [byId("confirm-go"), byId("confirm-deny")];
  go.textContent = question.confirm.text;
  go.className = question.style ?? "primary";
  deny.textContent = question.deny.text;
  return new Promise((resolve) => {
    const close = (result) => () => { resolve(result); dialog.close(); };
    go.onclick = close(true);
    deny.onclick = close(false);
    dialog.onclose = () => resolve(false);
    dialog.showModal();
    deny.focus();
  });
}

function makeComposer(form, label, thread) {
  const area = el("textarea", { rows: "1", "aria-label": label, placeholder: label, enterkeyhint: "send" });
  const grow = () => {
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, 180)}px`;
  };
  const send = async () => {
    const text = area.value.trim();
    if (!text) return;
    area.value = "";
    grow();
    if (!(await say(text, thread()))) { area.value = area.value || text; grow(); }
  };
  area.addEventListener("input", grow);
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  form.replaceChildren(area, el("button", { type: "submit", class: "send", "aria-label": "Send" }, "➤"));
}

// ---- the sides

function drawSides() {
  const channel = names.channel(state.channel);
  document.title = `#${channel} · Upbot`;
  byId("title").textContent = `# ${channel}`;
  byId("channels").replaceChildren(...[...state.channels.values()].map((one) =>
    el("li", {}, el("button", {
      type: "button", "aria-current": one.id === state.channel ? "true" : undefined, onclick: () => goTo(one.id),
    }, `# ${one.name}`))));
  byId("people").replaceChildren(...everybody().map((one) => {
    const isBot = state.bots.includes(one);
    return el("li", {}, avatar(one.name, isBot), el("span", {}, one.name), el("small", {}, isBot ? "app" : one.about));
  }));
  byId("speak-as").replaceChildren(...state.people.map((one) =>
    el("option", { value: one.name, selected: one.name === state.me }, `${one.name} · ${one.about}`)));
  const area = byId("composer").querySelector("textarea");
  area.placeholder = `Message #${channel} as ${state.me}`;
  byId("thread-composer").querySelector("textarea").placeholder = `Reply as ${state.me}`;
}

function goTo(id) {
  state.channel = id;
  closeThread();
  document.body.classList.remove("with-sidebar");
  drawSides();
  drawChannel(true);
}

function speakAs(name) {
  state.me = name;
  try {
    localStorage.setItem("speak-as", name);
  } catch { /* a browser that keeps nothing forgets who one was */ }
  drawSides();
  drawChannel();
  if (state.thread) drawThread(false);
}

// ---- begin

makeComposer(byId("composer"), "Message", () => undefined);
makeComposer(byId("thread-composer"), "Reply in thread", () => state.thread);
byId("close-thread").onclick = closeThread;
byId("newer").onclick = () => toBottom(byId("messages"));
for (const box of [byId("messages"), byId("thread-messages")]) {
  box.addEventListener("scroll", () => {
    box.isLow = atEnd(box);
    if (box.isLow && box.id === "messages") byId("newer").hidden = true;
  });
  // A picture gets its height when it is there; whoever was at the end stays there.
  box.addEventListener("load", () => { if (box.isLow) toBottom(box); }, true);
}
byId("speak-as").onchange = (event) => speakAs(event.target.value);
byId("open-sidebar").onclick = () => document.body.classList.add("with-sidebar");
byId("close-sidebar").onclick = () => document.body.classList.remove("with-sidebar");
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || byId("confirm").open) return;
  if (document.body.classList.contains("with-sidebar")) document.body.classList.remove("with-sidebar");
  else if (state.thread) closeThread();
});
watchReadiness();
listen();
