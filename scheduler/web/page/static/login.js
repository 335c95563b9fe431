// SPDX-License-Identifier: Apache-2.0
// A link from another site is followed without the cookie, as it is SameSite=Strict.
// If the browser has one, the same request from here succeeds: load the page again.
"use strict";

(async () => {
  const options = { method: "HEAD", headers: { Accept: "text/html" } };
  if (document.getElementById("error") || location.pathname === "/login") return;
  const answer = await fetch(location.href, options);
  if (answer.ok) location.replace(location.href);
})();
