"""`python -m opsmith` is the `opsmith` command.

``python -m <package>._opsmith`` also runs this file if opsmith is installed, since an installed
package then uses opsmith in place of its own copy. It prints how calls run, as the copy does.
"""

if (__package__ or "").endswith("._opsmith"):
    from opsmith.operators.dispatch.gates import gate_libraries

    print(gate_libraries.say())
else:
    from opsmith.cli import main

    main()
