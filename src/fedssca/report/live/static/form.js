"use strict";
// A new run: fields made from the schema, errors where they belong, or the same as TOML.

/** What was typed last, so that a run that failed can be mended. */
const Draft = {
  said: null,
  error: "",
  blame(error) {
    this.error = error || "";
  },
  take() {
    const found = { said: this.said, error: this.error };
    this.error = "";
    return found;
  },
};

function formView(like) {
  const node = el(
    "main",
    {},
    el(
      "div",
      { class: "runhead" },
      el("div", {}, el("a", { class: "back", href: "#/" }, "← Runs"), el("h1", {}, "New run")),
    ),
  );
  const draft = Draft.take();
  (async () => {
    const blank = await ask(like ? `/api/config?${query([like])}` : "/api/form");
    const mended = !like && draft.error && draft.said ? { ...blank, ...draft.said } : blank;
    const form = makeForm(mended, blank.sections);
    node.append(form.node);
    if (mended !== blank) form.blame(draft.error);
    else form.focus();
  })().catch((error) => node.append(el("p", { class: "notice wrong" }, error.message)));
  return { node, close() {} };
}

function makeForm(start, sections) {
  const inputs = new Map();
  const limitFields = sections.find((section) => section.name === "problem.constraint").fields;
  const limits = el("div", { class: "limits" });
  const top = el("p", { class: "notice wrong", role: "alert", hidden: true });
  const name = el("input", {
    type: "text",
    value: start.name,
    autocomplete: "off",
    spellcheck: "false",
  });
  const text = el("textarea", { rows: 24, spellcheck: "false", "aria-label": "The run as TOML" });
  const takes = (kind, key) =>
    key === "kind" || key === "limit" || (start.takes[kind] || []).includes(key);
  let asToml = false;

  function addLimit(values = { kind: "loss", limit: "" }) {
    const own = new Map();
    const box = el("fieldset", { class: "limit" });
    const fit = () => {
      for (const [key, each] of own) each.node.hidden = !takes(own.get("kind").read(), key);
    };
    const remove = el(
      "button",
      {
        type: "button",
        class: "quiet small",
        onclick: () => {
          box.remove();
          number();
          addButton.focus();
        },
      },
      "Remove",
    );
    box.append(
      el("legend", {}),
      el(
        "div",
        { class: "fields" },
        limitFields.map((field) => {
          const made = fieldOf(field, values[field.key] ?? "");
          own.set(field.key, made);
          return made.node;
        }),
      ),
      remove,
    );
    box.own = own;
    own.get("kind").input.addEventListener("change", fit);
    fit();
    limits.append(box);
    number();
  }
  const number = () =>
    [...limits.children].forEach((box, k) => {
      box.querySelector("legend").textContent = `Limit ${k + 1}`;
    });
  const addButton = el(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () => {
        addLimit();
        limits.lastElementChild.querySelector("select, input").focus();
      },
    },
    "Add a limit",
  );

  const parts = sections
    .filter((section) => section.name !== "problem.constraint")
    .map((section) => {
      const made = section.fields.map((field) => {
        const one = fieldOf(field, start.values[field.key] ?? field.default);
        inputs.set(field.key, { ...one, field });
        return { field, ...one };
      });
      const basic = made.filter(({ field }) => field.basic).map((each) => each.node);
      const rest = made.filter(({ field }) => !field.basic).map((each) => each.node);
      const changed = made.some(
        ({ field }) =>
          !field.basic &&
          start.values[field.key] !== undefined &&
          start.values[field.key] !== field.default &&
          !basic.length,
      );
      return el(
        "section",
        { class: "card part" },
        el(
          "header",
          {},
          el("div", {}, el("h2", {}, section.name), el("span", { class: "note" }, section.about)),
        ),
        el("div", { class: "fields" }, basic),
        section.name === "problem" ? el("div", { class: "constraints" }, limits, addButton) : null,
        rest.length
          ? el(
              "details",
              { class: "more", open: changed },
              el("summary", {}, basic.length ? "More settings" : "Settings"),
              el("div", { class: "fields" }, rest),
            )
          : null,
      );
    });
  (start.limits || []).forEach(addLimit);

  const fieldsPart = el("div", { class: "parts" }, parts);
  const tomlPart = el(
    "section",
    { class: "card part", hidden: true },
    el(
      "header",
      {},
      el(
        "div",
        {},
        el("h2", {}, "TOML"),
        el("span", { class: "note" }, "keys that are left out have their defaults"),
      ),
    ),
    text,
    el("p", { class: "error", id: "error-toml", hidden: true }),
  );
  const nameField = labelled(
    "name",
    "Name of the run",
    "letters, digits, dots, dashes; the folder of the run",
    name,
  );
  const tabs = el(
    "fieldset",
    { class: "segments" },
    el("legend", { class: "hidden" }, "Edit as"),
    ["Form", "TOML"].map((label, k) => {
      const input = el("input", {
        type: "radio",
        name: "shape",
        checked: k === 0,
        onchange: () =>
          attempt(() => turn(k === 1)).then((done) => {
            if (done === null)
              input.closest("fieldset").querySelectorAll("input")[asToml ? 1 : 0].checked = true;
          }),
      });
      return el("label", {}, input, el("span", {}, label));
    }),
  );
  const submit = el("button", { type: "submit", class: "primary" }, "Start the run");
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
    el("div", { class: "formhead card" }, nameField.node, tabs),
    top,
    fieldsPart,
    tomlPart,
    el("div", { class: "foot" }, submit),
  );

  function said() {
    if (asToml) return { toml: text.value };
    const values = {};
    for (const [key, { read, field }] of inputs) if (read() !== field.default) values[key] = read();
    const rows = [...limits.children].map((box) =>
      Object.fromEntries(
        [...box.own]
          .filter(([, each]) => !each.node.hidden)
          .map(([key, { read }]) => [key, read()]),
      ),
    );
    return { values, limits: rows };
  }
  /** From the form to TOML and back: what cannot be read stays where it is. */
  async function turn(toToml) {
    clear();
    let found;
    try {
      found = await ask("/api/check", said());
    } catch (error) {
      showErrors(error.errors || { "": error.message });
      throw new Error("Mend what is marked first.");
    }
    if (toToml) text.value = found.toml;
    else {
      for (const [key, { write, field }] of inputs) write(found.values[key] ?? field.default);
      limits.replaceChildren();
      found.limits.forEach(addLimit);
    }
    asToml = toToml;
    fieldsPart.hidden = asToml;
    tomlPart.hidden = !asToml;
    return true;
  }
  async function send() {
    clear();
    submit.disabled = true;
    const what = said();
    try {
      const found = await ask("/api/start", { name: name.value.trim(), ...what });
      Draft.said = {
        name: name.value.trim(),
        ...(what.values ? { values: { ...defaults(), ...what.values }, limits: what.limits } : {}),
      };
      go("run", [found.name]);
    } catch (error) {
      showErrors(error.errors || { "": error.message });
    }
    submit.disabled = false;
  }
  const defaults = () =>
    Object.fromEntries([...inputs].map(([key, { field }]) => [key, field.default]));
  function clear() {
    top.hidden = true;
    node.querySelectorAll(".error").forEach((line) => {
      line.hidden = true;
    });
    node
      .querySelectorAll("[aria-invalid]")
      .forEach((input) => input.removeAttribute("aria-invalid"));
  }
  function target(key) {
    const entry = /^problem\.constraint\.(\d+)(?:\.(\w+))?/.exec(key);
    if (entry) return limits.children[Number(entry[1])]?.own.get(entry[2] || "limit");
    if (key === "name") return nameField;
    return inputs.get(key.split(".").slice(0, 2).join("."));
  }
  function showErrors(errors) {
    const loose = [];
    let first = null;
    for (const [key, words] of Object.entries(errors)) {
      const place = asToml && key !== "name" ? null : target(key);
      if (place) {
        place.fail(words);
        place.node.closest("details")?.setAttribute("open", "");
        first = first || place;
      } else loose.push(words);
    }
    if (loose.length) {
      top.textContent = loose.join(" · ");
      top.hidden = false;
    }
    (first?.input || node.querySelector(asToml ? "textarea" : "input")).focus();
    if (!first) top.scrollIntoView({ block: "nearest" });
  }
  /** A line that a run ended with: at its field if it names one, else on top. */
  function blame(line) {
    const full = /^([a-z]+(?:\.\w+)+) = /.exec(line)?.[1];
    const short = /^(\w+) = /.exec(line)?.[1];
    const keys = short ? [...inputs.keys()].filter((key) => key.endsWith(`.${short}`)) : [];
    showErrors({ [full || (keys.length === 1 ? keys[0] : "")]: line });
  }
  return { node, blame, focus: () => name.select() };
}

/** One field: a label, an input that fits its kind, help, and room for an error. */
function fieldOf(field, value) {
  let input;
  if (field.kind === "choice") {
    input = el(
      "select",
      {},
      field.choices.map((choice) => el("option", { value: choice }, choice)),
    );
    if (!field.choices.includes(value) && value !== "")
      input.prepend(el("option", { value }, value));
  } else if (field.kind === "bool") input = el("input", { type: "checkbox" });
  else
    input = el("input", {
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      inputmode: { int: "numeric", float: "decimal" }[field.kind] || "text",
      placeholder: field.placeholder,
    });
  const write = (next) => {
    if (field.kind === "bool") input.checked = next === true;
    else input.value = String(next);
  };
  write(value);
  return {
    ...labelled(field.key, field.label, field.help, input),
    write,
    read: () => (field.kind === "bool" ? input.checked : input.value.trim()),
  };
}

function labelled(key, label, help, input) {
  const id = `field-${(labelled.count = (labelled.count || 0) + 1)}`;
  const error = el("span", { class: "error", id: `${id}-error`, hidden: true });
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-help ${id}-error`);
  const node = el(
    "div",
    { class: input.type === "checkbox" ? "field check" : "field", "data-key": key },
    el("label", { for: id }, label),
    input,
    el("span", { class: "note", id: `${id}-help` }, help),
    error,
  );
  return {
    node,
    input,
    fail(words) {
      error.textContent = words;
      error.hidden = false;
      input.setAttribute("aria-invalid", "true");
    },
  };
}
