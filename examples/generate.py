#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""generate.py: continues a prompt with the library, from Python, with only ctypes.

    generate.py MODEL.gguf "Once upon a time"

The system's loader finds the library; QUERN_LIBRARY names another one.
"""
import ctypes as c
import os
import sys

quern = c.CDLL(os.environ.get("QUERN_LIBRARY", "libquern.so.0"))
quern.qn_model_close.argtypes = quern.qn_engine_free.argtypes = quern.qn_session_free.argtypes = [c.c_void_p]


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("msg", c.c_char * 500)]


TEXT = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(c.c_char), c.c_size_t)


class GenerateParams(c.Structure):
    _fields_ = [("size", c.c_size_t), ("max_tokens", c.c_int), ("is_chat", c.c_bool), ("conversation", c.c_void_p),
                ("stop", c.c_void_p), ("n_stop", c.c_size_t), ("text", TEXT), ("arg", c.c_void_p)]


def call(function, *args):
    e = Error()
    if function(*args, c.byref(e)):
        sys.exit(f"generate.py: {e.msg.decode()}")


@TEXT
def write(arg, text, n):
    sys.stdout.buffer.write(text[:n])
    return True


model, engine, session, params = c.c_void_p(), c.c_void_p(), c.c_void_p(), GenerateParams()
prompt = sys.argv[2].encode()
call(quern.qn_model_open, c.byref(model), sys.argv[1].encode())
call(quern.qn_engine_new, c.byref(engine), model, None)
call(quern.qn_session_new, c.byref(session), engine, None)
quern.qn_generate_params_init(c.byref(params))
params.max_tokens = 40
params.text = write
call(quern.qn_generate, session, prompt, c.c_size_t(len(prompt)), c.byref(params), None)
quern.qn_session_free(session)
quern.qn_engine_free(engine)
quern.qn_model_close(model)
print()
