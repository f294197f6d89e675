// The last form that was sent and why its run failed, so that the user can correct the settings.

let sent = null;
let failure = null;

/** Remember the values of a form that was sent. */
export function rememberForm(values) {
  sent = values;
}

/** Remember why the run of that form failed: {message, field}, where `field` may be null. */
export function rememberFailure(found) {
  failure = found;
}

/** The form to correct and the failure: {values, failure}; null if there is nothing to correct. */
export function takeDraft() {
  const draft = sent && failure ? { values: sent, failure } : null;
  failure = null;
  return draft;
}
