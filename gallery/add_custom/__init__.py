"""An elementwise sum on Ascend NPUs."""
