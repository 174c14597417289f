const system = matchMedia("(prefers-color-scheme: dark)");

// What is chosen, or else as the system is. Swagger UI is dark by a class of its own.
function show() {
	const chosen = localStorage.getItem("gcws-theme");
	const isDark = chosen === "dark" || (chosen !== "light" && system.matches);
	const { classList, style } = document.documentElement;
	classList.toggle("dark-mode", isDark);
	style.colorScheme = isDark ? "dark" : "light";
}

show();
addEventListener("themechange", show);
system.addEventListener("change", () => dispatchEvent(new Event("themechange")));
