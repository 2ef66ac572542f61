"""Why an environment does not work: one place for all that smoke, create, status and doctor know of it."""
