export function script(name) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    element.src = new URL(name, import.meta.url);
    element.onload = resolve;
    element.onerror = () => reject(new Error(`${name} was not found: reload the page`));
    document.head.append(element);
  });
}
