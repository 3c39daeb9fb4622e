// The panel that breaks things, and whether everything is ready yet.

import { ask } from "/page/asking.js";
import { byId, el } from "/page/dom.js";

async function drawBreaker() {
  const answer = await ask("/control/servers");
  if (!answer.ok) return;
  const { servers, breakages } = answer;
  byId("starting").hidden = !answer.not_ready;
  byId("starting").textContent = `Getting ready: ${answer.not_ready ?? ""}`;
  byId("breaker").hidden = !servers.length;
  fillSelect(byId("breaker-server"), servers);
  if (byId("breakages").childElementCount) return;
  byId("breakages").replaceChildren(...breakages.map(breakage));
}

// An open list is left alone while nothing in it has changed.
function fillSelect(select, servers) {
  const words = servers.map((one) => (one.state ? `${one.name} · ${one.state}` : one.name));
  if (words.join("\n") === [...select.options].map((one) => one.textContent).join("\n")) return;
  const chosen = select.value || servers[0]?.name;
  select.replaceChildren(...servers.map((one, index) =>
    el("option", { value: one.name, selected: one.name === chosen }, words[index])));
}

function breakage(one) {
  const choice = one.choices.length &&
    el("select", { "aria-label": `${one.label}: how` }, one.choices.map((word) => el("option", { value: word }, word.replaceAll("_", " "))));
  const button = el("button", { type: "button", onclick: () => breakIt(one, choice ? choice.value : "") }, one.label);
  return el("div", { class: "breakage" }, button, choice || null);
}

async function breakIt(one, choice) {
  const server = byId("breaker-server").value;
  const answer = await ask("/control/break", { what: one.what, server, ...(choice && { choice }) });
  byId("breaker-said").textContent = answer.ok ? answer.said || `${one.label}: ${server}` : answer.reason;
  drawBreaker();
}

// Begins to watch whether everything is ready; looks again every two seconds until it is, or while the panel is open.
export function watchReadiness() {
  byId("breaker").ontoggle = drawBreaker;
  setInterval(() => { if (byId("breaker").open || !byId("starting").hidden) drawBreaker(); }, 2000);
  drawBreaker();
}
