"""Lower a model for a target: choose a form for each custom operator, and inline references.

A custom operator of a model either keeps a call of its own, or is inlined: replaced by the
operations of its reference. `inlining.lower` does this for any runtime; the target's
`choice.Chooser` defines which forms the runtime has, and what each form requires of an operator.
"""
