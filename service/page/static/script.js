const loading = new Map();

export function script(name, library) {
	if (!loading.has(name)) {
		loading.set(
			name,
			new Promise((resolve, reject) => {
				const element = document.createElement("script");
				element.src = new URL(name, import.meta.url).href;
				element.onload = () => resolve(window[library]);
				element.onerror = () => reject(new Error(`${name} was not found: reload the page`));
				document.head.append(element);
			}),
		);
	}
	return loading.get(name);
}
