// Elements of the page. Text always becomes text nodes, never HTML, so that no text in the data can
// add elements or scripts.

/** The data that the server embedded in the page. */
export function pageData() {
  return JSON.parse(document.getElementById("data").textContent);
}

/** An HTML element. Attributes that are functions become event listeners; strings among the
 *  children become text; attributes and children that are null or undefined are left out. */
export function el(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** An SVG element, with the same rules. */
export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** A card: a heading with a note, tools at its right, and content below. */
export function card(kind, heading, note, tools, ...content) {
  const noted = typeof note === "string" ? el("span", { class: "note" }, note) : note;
  return el(
    "section",
    { class: `card ${kind}`.trim() },
    el(
      "header",
      {},
      el("div", {}, heading, noted),
      tools ? el("div", { class: "tools" }, tools) : null,
    ),
    ...content,
  );
}
