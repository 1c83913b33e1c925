"""Kernels of our own for one thread of a CPU, where torch's are slow or have no such op.

The C++ sources beside this file are compiled once a machine, where there is a compiler; without one, with more threads
or in another type, models go by torch's ops.
"""
