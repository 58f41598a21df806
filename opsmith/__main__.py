"""`python -m opsmith` is the `opsmith` command.

``python -m <package>._opsmith`` comes here too, where opsmith serves an installed package: it is
imported in place of what came with that. It says how calls run, as it does without opsmith.
"""

if (__package__ or "").endswith("._opsmith"):
    from opsmith.operators.dispatch import gate_libraries

    print(gate_libraries.say())
else:
    from opsmith.cli import main

    main()
