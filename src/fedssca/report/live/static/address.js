// Addresses of the views: #/ is the list, #/run/NAME one run, #/sites/NAME its sites,
// #/compare/NAME/NAME... several runs, #/methods all methods on all problems, #/new the form, and #/new/NAME the form with the settings of a run.

/** The address of a view. */
export function addressOf(view, names = []) {
  return `#/${[view, ...names.map(encodeURIComponent)].join("/")}`;
}

/** Open a view. */
export function openView(view, names = []) {
  location.hash =
    view === "compare" && names.length === 1 ? addressOf("run", names) : addressOf(view, names);
}

/** The view and the names in an address: [view, name, ...]. */
export function parseAddress(hash) {
  return hash
    .replace(/^#\/?/, "")
    .split("/")
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
}
