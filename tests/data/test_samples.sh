#!/bin/sh
# Images of every kind beside Pillow and tifffile, to the bit; without these, test_tiff compares by loops.
. "$top_srcdir/tests/support/tap.sh"
peers() { "${PYTHON-python3}" "$top_srcdir/tests/data/samples_peers.py" "$top_builddir/tests/support/show_samples" "$scratch"; }
if "${PYTHON-python3}" -c 'import numpy, tifffile, PIL' 2>/dev/null; then
    ok "samples are those that Pillow and tifffile read" peers
else
    skip "samples are those that Pillow and tifffile read" "no Python with numpy, tifffile and Pillow"
fi
finish
