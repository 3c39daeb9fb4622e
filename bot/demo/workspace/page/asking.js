// Asks the workspace to do something, and shows why it would not.

import { byId } from "/page/dom.js";

export async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  try {
    const answer = await fetch(path, options);
    return await answer.json();
  } catch {
    return { ok: false, reason: "the workspace does not answer" };
  }
}

export function complain(why) {
  const toast = byId("toast");
  toast.textContent = why;
  toast.hidden = false;
  clearTimeout(complain.timer);
  complain.timer = setTimeout(() => (toast.hidden = true), 6000);
}
