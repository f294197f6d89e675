// A new run: a form made from the schema, or the same settings as TOML. Errors stand at their fields.

import { card, el } from "../../static/dom.js";
import { openView } from "./address.js";
import { attempt, queryOf, request } from "./api.js";
import { clearErrors, labelled, schemaField } from "./field.js";
import { limitsEditor } from "./limits.js";

const LIMITS = "problem.constraint";

/** The view of a new run: {node, close()}; `like` is the name of a run whose settings it starts from. */
export function formView(like) {
  const node = el(
    "main",
    {},
    el(
      "div",
      { class: "runhead" },
      el("div", {}, el("a", { class: "back", href: "#/" }, "← Runs"), el("h1", {}, "New run")),
    ),
  );
  (async () => {
    const start = await request(like ? `/api/config?${queryOf([like])}` : "/api/form");
    const form = makeForm(start);
    node.append(form.node);
    if (start.failure) form.showErrors({ [start.failure.field || ""]: start.failure.message });
    else form.focus();
  })().catch((error) => node.append(el("p", { class: "notice wrong" }, error.message)));
  return { node, close() {} };
}

function makeForm(start) {
  const inputs = new Map();
  const limitFields = start.sections.find(({ name }) => name === LIMITS).fields;
  const limits = limitsEditor(limitFields, start.takes);
  const top = el("p", { class: "notice wrong", role: "alert", hidden: true });
  const name = el("input", {
    type: "text",
    value: start.name,
    autocomplete: "off",
    spellcheck: "false",
  });
  const nameField = labelled(
    "name",
    "Name of the run",
    "letters, digits, dots, dashes, underscores; also the name of its folder",
    name,
  );
  const text = el("textarea", { rows: 24, spellcheck: "false", "aria-label": "The run as TOML" });
  const submit = el("button", { type: "submit", class: "primary" }, "Start the run");
  let asToml = false;

  const fieldsPart = el(
    "div",
    { class: "parts" },
    start.sections.filter((section) => section.name !== LIMITS).map(sectionCard),
  );
  const tomlPart = card(
    "part",
    el("h2", {}, "TOML"),
    "keys that are left out have their default values",
    null,
    text,
  );
  tomlPart.hidden = true;
  limits.write(start.limits || []);
  disableUnread(inputs);

  const node = el(
    "form",
    {
      novalidate: true,
      class: "newrun",
      onsubmit: (event) => {
        event.preventDefault();
        send();
      },
    },
    el("div", { class: "formhead card" }, nameField.node, shapeSwitch()),
    top,
    fieldsPart,
    tomlPart,
    el("div", { class: "foot" }, submit),
  );

  function sectionCard(section) {
    const made = section.fields.map((field) => {
      const own = schemaField(field, start.values[field.key] ?? field.default);
      inputs.set(field.key, { ...own, field });
      return { field, node: own.node };
    });
    const basic = made.filter(({ field }) => field.basic);
    const rest = made.filter(({ field }) => !field.basic);
    const changed = rest.some(
      ({ field }) => (start.values[field.key] ?? field.default) !== field.default,
    );
    const nodes = (list) => list.map((each) => each.node);
    return card(
      "part",
      el("h2", {}, section.name),
      section.about,
      null,
      el("div", { class: "fields" }, nodes(basic)),
      section.name === "problem" ? limits.node : null,
      rest.length
        ? el(
            "details",
            { class: "more", open: changed && !basic.length },
            el("summary", {}, basic.length ? "More settings" : "Settings"),
            el("div", { class: "fields" }, nodes(rest)),
          )
        : null,
    );
  }
  /** The choice between the form and TOML. */
  function shapeSwitch() {
    const radios = ["Form", "TOML"].map((label, k) => ({
      label,
      input: el("input", {
        type: "radio",
        name: "shape",
        checked: k === 0,
        onchange: async () => {
          if (!(await attempt(() => changeShape(k === 1))))
            radios[asToml ? 1 : 0].input.checked = true;
        },
      }),
    }));
    return el(
      "fieldset",
      { class: "segments" },
      el("legend", { class: "hidden" }, "Edit as"),
      radios.map(({ label, input }) => el("label", {}, input, el("span", {}, label))),
    );
  }
  /** The settings as the server expects them: TOML, or the values that differ from the defaults. */
  function settings() {
    if (asToml) return { toml: text.value };
    const changed = [...inputs].filter(
      ([, { read, field, input }]) => !input.disabled && read() !== field.default,
    );
    return {
      values: Object.fromEntries(changed.map(([key, { read }]) => [key, read()])),
      limits: limits.read(),
    };
  }
  /** From the form to TOML or back. Settings with errors stay in the shape in which they are. */
  async function changeShape(toToml) {
    clear();
    let answer;
    try {
      answer = await request("/api/check", settings());
    } catch (error) {
      showErrors(error.errors || { "": error.message });
      throw new Error("Correct the marked fields first.");
    }
    if (toToml) text.value = answer.toml;
    else {
      for (const [key, { write, field }] of inputs) write(answer.values[key] ?? field.default);
      limits.write(answer.limits);
      disableUnread(inputs);
    }
    asToml = toToml;
    fieldsPart.hidden = asToml;
    tomlPart.hidden = !asToml;
    return true;
  }
  async function send() {
    clear();
    submit.disabled = true;
    const given = { name: name.value.trim(), ...settings() };
    try {
      const answer = await request("/api/start", given);
      openView("run", [answer.name]);
    } catch (error) {
      showErrors(error.errors || { "": error.message });
    }
    submit.disabled = false;
  }
  function clear() {
    top.hidden = true;
    clearErrors(node);
  }
  /** The field that a key names, if it is on the page. */
  function fieldOf(key) {
    if (key === "name") return nameField;
    if (asToml) return undefined;
    const limit = /^problem\.constraint\.(\d+)(?:\.(\w+))?/.exec(key);
    if (limit) return limits.fieldAt(Number(limit[1]), limit[2] || "limit");
    return inputs.get(key.split(".").slice(0, 2).join("."));
  }
  /** Show messages at their fields; those without a field stand above the form. */
  function showErrors(errors) {
    const others = [];
    let first = null;
    for (const [key, message] of Object.entries(errors)) {
      const field = fieldOf(key);
      if (field) {
        field.fail(message);
        field.node.closest("details")?.setAttribute("open", "");
        first = first || field;
      } else others.push(message);
    }
    if (others.length) {
      top.textContent = others.join(" · ");
      top.hidden = false;
    }
    (first?.input || (asToml ? text : name)).focus();
    if (!first) top.scrollIntoView({ block: "nearest" });
  }
  return { node, showErrors, focus: () => name.select() };
}

/** Disable the fields that are not read while another one is given, such as the name of a data set
 *  beside a file, and follow what is typed there. */
function disableUnread(inputs) {
  for (const { field, input, remark } of inputs.values()) {
    const others = field.unless.map((key) => inputs.get(key));
    const update = () => {
      const given = others.find(({ read }) => read() !== "");
      input.disabled = given !== undefined;
      remark(given ? `not used: ${given.field.label} is given` : field.help);
    };
    for (const other of others) other.input.oninput = update;
    if (others.length) update();
  }
}
