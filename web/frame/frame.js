/**
 * Shows markup made by code, on an origin of its own, in a frame without one.
 *
 * Scripts of the output never run, for a measured reason: in a sandboxed frame under the strictest policy a script still reaches
 * the network in Chromium, by WebRTC (STUN packets leave) and by navigating (the name is resolved and the connection opened before
 * the policy stops it); so does a `meta` refresh. Without scripts and without the few elements below, nothing does.
 *
 * A classic script, because a module would be fetched with CORS from an opaque origin.
 */
(() => {
  /** @typedef {import('../host/model/frame_messages.js').ToFrame} ToFrame */
  /** @typedef {import('../host/model/frame_messages.js').FromFrame} FromFrame */

  /** Elements that load, run, navigate or frame something. The policy stops most; the rest is stopped here. */
  const REFUSED = 'script, meta, base, link, iframe, frame, frameset, object, embed, applet, portal, fencedframe, audio, video, noscript';
  /** Attributes that navigate or send. */
  const REFUSED_ATTRIBUTES = /^(on.*|href|xlink:href|ping|action|formaction|srcdoc|background|target|autofocus|http-equiv|manifest)$/i;

  const output = /** @type {HTMLElement} */ (document.getElementById('output'));
  /** @type {MessagePort | null} */
  let port = null;

  /** @param {FromFrame} message */
  const send = (message) => port?.postMessage(message);

  /** @param {unknown} value @returns {value is ToFrame} */
  function isToFrame(value) {
    if (typeof value !== 'object' || value === null) return false;
    const message = /** @type {Record<string, unknown>} */ (value);
    if (message.type === 'theme') return typeof message.dark === 'boolean' && typeof message.reducedMotion === 'boolean';
    return message.type === 'render' && typeof message.data === 'string' && (message.mime === 'text/html' || message.mime === 'image/svg+xml');
  }

  /** @param {Element | DocumentFragment} root */
  function disarm(root) {
    for (const element of root.querySelectorAll(REFUSED)) element.remove();
    for (const element of root.querySelectorAll('*')) {
      if (element instanceof HTMLTemplateElement) disarm(element.content);
      for (const { name, value } of [...element.attributes]) {
        if (!REFUSED_ATTRIBUTES.test(name)) continue;
        // Where a link would have gone stays readable; within an SVG a reference to its own parts stays in use.
        if (/href$/i.test(name) && value.startsWith('#') && element.localName !== 'a') continue;
        element.removeAttribute(name);
        if (name === 'href' && element.localName === 'a') element.setAttribute('title', `Links are not followed in outputs: ${value}`);
      }
    }
  }

  /** @param {string} html */
  function showHtml(html) {
    const parsed = new DOMParser().parseFromString(html, 'text/html');
    disarm(parsed.documentElement);
    output.replaceChildren(...parsed.head.childNodes, ...parsed.body.childNodes);
    for (const cell of output.querySelectorAll('table.dataframe thead th:not([scope])')) cell.setAttribute('scope', 'col');
  }

  /** As a picture an SVG can neither run nor load anything. @param {string} svg */
  function showSvg(svg) {
    const image = new Image();
    image.alt = new DOMParser().parseFromString(svg, 'text/html').querySelector('svg title')?.textContent?.trim() || 'Drawing';
    image.onerror = () => send({ type: 'error', message: 'this SVG cannot be drawn' });
    image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(svg);
    output.replaceChildren(image);
  }

  /** @param {MessageEvent} event */
  function receive({ data }) {
    if (!isToFrame(data)) return;
    try {
      // The theme itself follows the system in CSS; the attributes are for what an output brings along.
      if (data.type === 'theme') {
        document.documentElement.dataset.theme = data.dark ? 'dark' : 'light';
        document.documentElement.dataset.motion = data.reducedMotion ? 'reduced' : 'full';
      } else if (data.mime === 'text/html') showHtml(data.data);
      else showSvg(data.data);
    } catch (error) {
      send({ type: 'error', message: String(error).slice(0, 500) });
    }
  }

  function measure() {
    send({ type: 'height', height: Math.ceil(output.getBoundingClientRect().height) });
    // What scrolls must be reachable by keyboard; what does not must not be a stop.
    if (output.scrollWidth > output.clientWidth) output.tabIndex = 0;
    else output.removeAttribute('tabindex');
  }

  addEventListener('message', (event) => {
    if (port || event.source !== parent || event.data?.type !== 'connect' || !event.ports[0]) return;
    port = event.ports[0];
    port.onmessage = receive;
    send({ type: 'ready' });
    new ResizeObserver(measure).observe(output);
  });
  // Nothing in an output leads anywhere, whatever kind of element it is.
  addEventListener('click', (event) => {
    if (event.target instanceof Element && event.target.closest('a')) event.preventDefault();
  }, true);
  addEventListener('submit', (event) => event.preventDefault(), true);
})();
