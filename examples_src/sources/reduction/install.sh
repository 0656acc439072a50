python -m pip install "torch>=2.11" "setuptools>=77.0.3" ninja pytest numpy
python -m pip install --no-build-isolation -e .
