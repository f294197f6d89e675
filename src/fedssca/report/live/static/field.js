// One field of the form: a label, an input that suits its kind, help, and room for an error.

import { el } from "../../static/dom.js";

let fields = 0;

/** A field that the schema describes: {node, input, read(), write(value), fail(message),
 *  remark(words)}. The key of the TOML file stands small beside its label. */
export function schemaField(field, value) {
  const input = inputOf(field, value);
  const isBool = field.kind === "bool";
  const write = (next) => {
    if (isBool) input.checked = next === true;
    else input.value = String(next);
  };
  write(value);
  const label = [field.label, el("code", { class: "key" }, field.name)];
  const made = labelled(field.key, label, field.help, input);
  if (field.kind === "suggestions") {
    const options = field.choices.map((choice) => el("option", { value: choice }));
    made.node.append(el("datalist", { id: `${input.id}-known` }, options));
    input.setAttribute("list", `${input.id}-known`);
  }
  return {
    ...made,
    write,
    read: () => (isBool ? input.checked : input.value.trim()),
  };
}

/** A label, help and room for an error around an input: {node, input, fail(message), remark(words)}.
 *  `remark` replaces the help. */
export function labelled(key, label, help, input) {
  fields += 1;
  const id = `field-${fields}`;
  const error = el("span", { class: "error", id: `${id}-error`, hidden: true });
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-help ${id}-error`);
  const note = el("span", { class: "note", id: `${id}-help` }, help);
  const node = el(
    "div",
    { class: input.type === "checkbox" ? "field check" : "field", "data-key": key },
    el("label", { for: id }, label),
    input,
    note,
    error,
  );
  return {
    node,
    input,
    remark(words) {
      note.textContent = words;
    },
    fail(message) {
      error.textContent = message;
      error.hidden = false;
      input.setAttribute("aria-invalid", "true");
    },
  };
}

/** Remove the errors of all fields within a node. */
export function clearErrors(node) {
  for (const line of node.querySelectorAll(".error")) line.hidden = true;
  for (const input of node.querySelectorAll("[aria-invalid]"))
    input.removeAttribute("aria-invalid");
}

function inputOf(field, value) {
  if (field.kind === "bool") return el("input", { type: "checkbox" });
  if (field.kind === "choice") {
    const foreign = !field.choices.includes(value) && value !== "" ? [value] : [];
    const choices = [...foreign, ...field.choices];
    return el(
      "select",
      {},
      choices.map((choice) => el("option", { value: choice }, choice)),
    );
  }
  return el("input", {
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    inputmode: { int: "numeric", float: "decimal" }[field.kind] || "text",
    placeholder: field.placeholder,
  });
}
