// Brings what is shown up to date in place: what stays keeps its focus, its selection and a click that has begun.

const LISTENERS = ['onclick', 'oninput'];

// A row belongs to its lock or claim, wherever it stands; anything else goes by its kind and its place.
const key = (node) => node.dataset?.lock ?? node.dataset?.claim;

// Makes `wanted` the children of `parent`, and touches only what differs.
export function update(parent, wanted) {
  const rows = new Map();
  const keys = new Set(wanted.map(key));
  for (const node of [...parent.childNodes]) {
    if (!keys.has(key(node))) node.remove();
    else if (key(node) !== undefined) rows.set(key(node), node);
  }
  let at = parent.firstChild;
  for (const fresh of wanted) {
    const old = key(fresh) === undefined ? at : rows.get(key(fresh));
    if (!old || old.nodeName !== fresh.nodeName || key(old) !== key(fresh)) {
      parent.insertBefore(fresh, at);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else parent.insertBefore(old, at);
    match(old, fresh);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function match(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of LISTENERS) old[name] = fresh[name];
  update(old, [...fresh.childNodes]);
}
