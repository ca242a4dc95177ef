#!/bin/sh
# Runs inside the image's first stage, without network: puts the locked wheels into /opt/kernel.
set -eu
python3.13 -m venv --without-pip --symlinks /opt/kernel
python=/opt/kernel/bin/python
site=$($python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# --require-hashes: a wheel that is not the locked one ends the build here, whatever the download said.
set -- /build/wheels/pip-*.whl
$python "$1/pip" install --quiet --no-index --find-links /build/wheels --require-hashes --no-deps \
  --no-compile --no-cache-dir --disable-pip-version-check --root-user-action ignore -r /build/requirements.lock

# Labels in Chinese, Japanese and Korean get their glyphs from a fallback font at the end of every list. A matplotlibrc could
# not promise that: seaborn's themes and matplotlib's styles put their own font lists in its place.
$python - "$site/matplotlib/font_manager.py" <<'PY'
import sys

path = sys.argv[1]
source = open(path).read()
end = """                                 "to the default font was disabled")

        return fpaths
"""
assert source.count(end) == 1, "matplotlib has changed: look at FontManager._find_fonts_by_props"
added = """                                 "to the default font was disabled")

        if fontext == "ttf":  # added by the image's build: missing glyphs come from here
            fpaths.append(FontPath("/usr/share/fonts/truetype/wqy/wqy-microhei.ttc", 0))
        return fpaths
"""
open(path, "w").write(source.replace(end, added))
PY

# Not used by a kernel: test suites, C headers, what a notebook server (not a kernel) serves to browsers.
find "$site" -type d -name tests -not -path '*/numpy/*' -prune -exec rm -rf {} +
rm -rf "$site/pyarrow/include" "$site/matplotlib/mpl-data/sample_data" \
  /opt/kernel/share/jupyter/labextensions /opt/kernel/share/jupyter/nbextensions \
  "$site/plotly/labextension" /opt/kernel/etc /opt/kernel/share/man

# Compiled now, since the root file system is read-only later. Unchecked: nothing here changes, so no start need look again.
$python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$site" || true
# Some packages ship files for other Python versions that do not compile; what is imported must.
MPLCONFIGDIR=/opt/kernel/share/matplotlib
OMP_NUM_THREADS=1 # or OpenBLAS and OpenMP spin on every core while nothing is computed
export MPLCONFIGDIR OMP_NUM_THREADS
mkdir -p "$MPLCONFIGDIR"
$python - <<'PY'
import ipykernel, jupyter_client, zmq, numpy, pandas, scipy.stats, sklearn, plotly.express, altair, ipywidgets, tqdm
import polars, duckdb, pyarrow.parquet, openpyxl, PIL.Image, matplotlib
import warnings
matplotlib.use("agg")
import seaborn
from matplotlib import pyplot
warnings.simplefilter("error")  # a glyph that no font has is a warning
seaborn.set_theme()
figure, axes = pyplot.subplots()
axes.set_title("Umsatz (\u20ac) \u9500\u552e\u989d \u58f2\u4e0a \ub9e4\ucd9c")
figure.canvas.draw()
PY
ls "$MPLCONFIGDIR"/fontlist-*.json >/dev/null
chmod -R u=rwX,go=rX /opt/kernel
