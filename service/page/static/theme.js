const theme = localStorage.getItem("gcws-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
