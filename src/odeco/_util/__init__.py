"""What every package needs: arguments, threads, scaling, types, files of arrays, optional imports."""
