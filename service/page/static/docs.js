const root = new URL("../../", import.meta.url);
const key = sessionStorage.getItem("gcws-key");

// Swagger UI's own deep links put a link into each button.
function follow() {
	const operation = document.getElementById(
		`operations-${location.hash.slice(2).replace("/", "-")}`,
	);
	operation?.scrollIntoView();
	operation?.querySelector("[aria-expanded=false]").click();
}

function name({ target }) {
	const id = target.closest(".opblock-summary")?.closest(".opblock").id;
	if (id) history.replaceState(null, "", id.replace(/^operations-(\w+)-/, "#/$1/"));
}

// Levels of headings, and names of fields, that Swagger UI leaves out.
function mend() {
	for (const title of document.querySelectorAll(".opblock-tag, .opblock :is(h4, h5)")) {
		title.ariaLevel = { H3: "2", H4: "3", H5: "4" }[title.tagName];
	}
	for (const field of document.querySelectorAll(".opblock :is(select, textarea)")) {
		field.ariaLabel ??= field.closest("tr")?.dataset.paramName ?? "Request body";
	}
}

new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
addEventListener("hashchange", follow);
addEventListener("click", name);
const page = SwaggerUIBundle({
	url: new URL("openapi.json", root).href,
	dom_id: "#swagger-ui",
	defaultModelsExpandDepth: -1,
	filter: true,
	syntaxHighlight: { theme: "tomorrow-night" },
	validatorUrl: null,
	onComplete: () => {
		follow();
		if (key) page.preauthorizeApiKey("bearer", key);
	},
});
