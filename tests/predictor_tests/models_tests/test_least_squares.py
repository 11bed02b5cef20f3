import numpy as np

from predictor.models.methods.laws import fit_linear_law


def test_scikit_learns_linear_regression_gives_the_same_law():
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    design, y = rng.normal(size=(40, 3)) * [1, 10, 0.1], rng.uniform(1, 9, 40)
    ours, theirs = fit_linear_law(("a", "b", "c"), design, y), LinearRegression().fit(design, y)
    np.testing.assert_allclose(ours.slopes, theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.intercept, theirs.intercept_, rtol=1e-8)


def test_a_column_in_a_small_unit_keeps_its_slope():
    rng = np.random.default_rng(0)
    design = rng.normal(size=(40, 3)) * [1, 1e5, 1e-5]
    law = fit_linear_law(("a", "b", "c"), design, 1 + design @ [1, 2e-5, 3e5])
    np.testing.assert_allclose(law.slopes, [1, 2e-5, 3e5], rtol=1e-8)


def test_relative_weights_are_those_of_one_over_y_squared():
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(1)
    design, y = rng.normal(size=(40, 2)), rng.uniform(1, 9, 40)
    theirs = LinearRegression().fit(design, y, sample_weight=1 / y**2)
    np.testing.assert_allclose(fit_linear_law(("a", "b"), design, y, relative=True).slopes, theirs.coef_)


def test_of_the_laws_that_fit_columns_that_depend_on_each_other_one_is_taken():
    x = np.arange(1.0, 9.0)
    law = fit_linear_law(("x", "twice"), np.column_stack([x, 2 * x]), 3 + x)
    np.testing.assert_allclose(law.predict(np.array([[20.0, 40.0]])), 23)
    np.testing.assert_allclose(law.slopes, [0.5, 0.25])  # the smallest coefficients of columns of length 1
