/* SPDX-License-Identifier: MIT
 *
 * check_model.c: opens a model file and runs the checks of loading on it. See check_model.h.
 */
#include "cli/models/check_model.h"

#include "model/load.h"

int check_model(struct weights **w, const char *path, bool deep, const char *pre, weights_watch *watch, void *arg,
                struct qn_error *e)
{
    struct qn_error why = {0};
    int rc = weights_open(w, path, e);
    if (rc) return rc; /* names the file */
    rc = model_check(*w, pre, &why);
    if (!rc && deep) rc = weights_check_finite(*w, watch, arg, &why);
    if (!rc) return 0;
    weights_close(*w);
    *w = NULL;
    return error_set(e, rc, "%s: %s", path, why.msg);
}
