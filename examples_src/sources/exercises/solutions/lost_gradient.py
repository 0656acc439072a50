library.impl("round_through", round_through, "CompositeExplicitAutograd")
