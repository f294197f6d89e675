// A stand-in for the browser's document, just large enough for the unit tests: elements with
// attributes, children and text. The tests in a real browser cover the rest.

class Node {
  constructor(tag) {
    this.tag = tag;
    this.attributes = {};
    this.children = [];
    this.listeners = {};
    this.dataset = {};
    this.style = { setProperty: (name, value) => (this.style[name] = value) };
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }
  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }
  append(...children) {
    this.children.push(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  get textContent() {
    return this.children
      .map((child) => (typeof child === "string" ? child : child.textContent))
      .join("");
  }
  set textContent(text) {
    this.children = [text];
  }
  /** All descendants with this tag, and with this class if one is given. */
  all(tag, kind) {
    const nodes = this.children.filter((child) => typeof child !== "string");
    const fits = (node) =>
      node.tag === tag && (!kind || (node.attributes.class || "").split(" ").includes(kind));
    return nodes.flatMap((node) => [...(fits(node) ? [node] : []), ...node.all(tag, kind)]);
  }
}

globalThis.document = {
  documentElement: new Node("html"),
  createElement: (tag) => new Node(tag),
  createElementNS: (_, tag) => new Node(tag),
};
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => `<${name}>` });

export const PALETTE = { light: ["red", "blue"], dark: ["pink", "cyan"] };

/** A run as the server describes it. */
export function makeRun(name, more = {}) {
  return {
    name,
    state: "complete",
    settings: { "algorithm.batch": "10" },
    constraints: [{ index: 0, name: "loss", limit: 0.3 }],
    more_constraints: 0,
    series: {
      round: [0, 5, 10],
      seconds: [0, 1, 2],
      train_cost: [0.9, 0.5, 0.2],
      test_accuracy: [0.5, 0.8, 0.9],
      bytes_up: [0, 100, 200],
      bytes_down: [0, 50, 100],
      "value.0": [0.6, 0.2, -0.1],
      "multiplier.0": [1, 2, 3],
      "slack.0": [0, 0, 0],
    },
    every: 1,
    result: null,
    sites: [],
    site_names: [],
    events: [],
    trouble: [],
    ...more,
  };
}
