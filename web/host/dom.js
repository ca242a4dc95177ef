/**
 * Making elements. Text goes in as text nodes only; there is no way to pass markup, so nothing a kernel says can become any.
 */

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [props] `class`, `on` (listeners), `data` (data-*), properties by name, else attributes
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') element.className = value;
    else if (name === 'on') for (const [event, fn] of Object.entries(value)) element.addEventListener(event, /** @type {any} */ (fn));
    else if (name === 'data') Object.assign(element.dataset, value);
    else if (name in element && !name.startsWith('aria') && name !== 'list' && name !== 'role') /** @type {any} */ (element)[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children);
  return element;
}

/** @param {Element} parent @param {(Child | Child[])[]} children */
export function append(parent, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

/** @param {Element} parent @param {...(Child | Child[])} children */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
}

/** Write only what changed: a rewrite would lose selections and make screen readers repeat. @param {Element} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {Element} element @param {string} name @param {string | null} value */
export function setAttr(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** @param {string} label @param {() => void} action @param {Record<string, any>} [props] */
export function button(label, action, props = {}) {
  return h('button', { type: 'button', ...props, on: { click: action, ...(props.on ?? {}) } }, label);
}

/**
 * Make the children of `parent` exactly `wanted`, moving as few as possible (moving an iframe reloads it).
 * @param {Element} parent @param {Element[]} wanted
 */
export function reconcile(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  let at = parent.firstElementChild;
  for (const element of wanted) {
    if (at === element) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
}

/** Say something to screen readers, politely. @param {string} text */
export function announce(text) {
  const region = document.getElementById('announcer');
  if (!region) return;
  // A new node each time, so that the same sentence twice is spoken twice.
  region.append(h('p', {}, text));
  while (region.children.length > 3) region.firstElementChild?.remove();
}

/** Blanks are no reason. @param {Event} event */
function nonBlank(event) {
  const input = /** @type {HTMLTextAreaElement} */ (event.target);
  input.setCustomValidity(input.value.trim() ? '' : 'Please give a reason.');
}

/**
 * Ask before something is lost. Resolves with the typed reason (or '') when confirmed, null when not.
 * @param {{title: string, lines: Child[], confirm: string, fields?: Child[], reason?: string, danger?: boolean}} options
 *   `fields`: inputs of the caller's, above the reason; what is required in them is asked for by the browser
 * @returns {Promise<string | null>}
 */
export function confirmDialog({ title, lines, confirm, fields = [], reason, danger = true }) {
  return new Promise((resolve) => {
    const input = reason ? h('textarea', { id: 'confirm-reason', rows: 2, required: true, maxLength: 500, on: { input: nonBlank } }) : null;
    const dialog = h('dialog', { class: 'dialog', 'aria-labelledby': 'confirm-title' },
      h('form', { method: 'dialog', on: { submit: () => { dialog.returnValue = 'yes'; } } },
        h('h2', { id: 'confirm-title' }, title),
        lines.map((line) => (line ? h('p', {}, line) : null)),
        fields,
        input && h('label', { htmlFor: 'confirm-reason' }, reason),
        input,
        h('div', { class: 'dialog-actions' },
          button('Cancel', () => dialog.close('')),
          h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, confirm))));
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'yes' ? (input?.value.trim() ?? '') : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
