"""The kernel languages, a file each, which has the language as `LANGUAGE`; and emulations."""
