// The limits of a new run: a list of fieldsets that grows and shrinks.

import { el } from "../../static/dom.js";
import { schemaField } from "./field.js";

/** The list of limits: {node, read(), write(entries), fieldAt(number, key)}. `fields` are those of one
 *  limit, and `takes` maps a kind of limit to the keys that it has beside `kind` and `limit`. */
export function limitsEditor(fields, takes) {
  const list = el("div", { class: "limits" });
  const entries = [];
  const addButton = el(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () => {
        add();
        list.lastElementChild.querySelector("select, input").focus();
      },
    },
    "Add a limit",
  );

  function add(values = { kind: "loss", limit: "" }) {
    const own = new Map(
      fields.map((field) => [field.key, schemaField(field, values[field.key] ?? "")]),
    );
    const entry = { own, legend: el("legend", {}) };
    const box = el(
      "fieldset",
      { class: "limit" },
      entry.legend,
      el(
        "div",
        { class: "fields" },
        [...own.values()].map((field) => field.node),
      ),
      el("button", { type: "button", class: "quiet small", onclick: remove }, "Remove"),
    );
    function remove() {
      box.remove();
      entries.splice(entries.indexOf(entry), 1);
      number();
      addButton.focus();
    }
    function showKeysOfKind() {
      const keys = ["kind", "limit", ...(takes[own.get("kind").read()] || [])];
      for (const [key, field] of own) field.node.hidden = !keys.includes(key);
    }
    own.get("kind").input.addEventListener("change", showKeysOfKind);
    showKeysOfKind();
    list.append(box);
    entries.push(entry);
    number();
  }
  function number() {
    entries.forEach(({ legend }, k) => {
      legend.textContent = `Limit ${k + 1}`;
    });
  }
  return {
    node: el("div", { class: "constraints" }, list, addButton),
    read: () =>
      entries.map(({ own }) =>
        Object.fromEntries(
          [...own]
            .filter(([, field]) => !field.node.hidden)
            .map(([key, field]) => [key, field.read()]),
        ),
      ),
    write(given) {
      list.replaceChildren();
      entries.splice(0);
      given.forEach((values) => {
        add(values);
      });
    },
    fieldAt: (k, key) => entries[k]?.own.get(key),
  };
}
