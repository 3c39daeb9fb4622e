// Makes DOM nodes. Text only ever becomes text nodes: nothing here, or anywhere on the page, parses HTML.

export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return node;
}

export const byId = (id) => document.getElementById(id);

export function safeLink(address, ...children) {
  return /^(https?:\/\/|mailto:)/i.test(address)
    ? el("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children)
    : el("span", {}, ...children);
}
