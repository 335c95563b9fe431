// SPDX-License-Identifier: Apache-2.0
// A link from another site is followed without the cookie, which is SameSite=Strict.
// If the browser has the cookie, the same request from this page succeeds: load again.
"use strict";

(async () => {
  const options = { method: "HEAD", headers: { Accept: "text/html" } };
  if (document.getElementById("error") || location.pathname === "/login") return;
  const answer = await fetch(location.href, options);
  if (answer.ok) location.replace(location.href);
})();
